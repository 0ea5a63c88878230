"""What the rows of a seed must be, worked out again from the seed for the audit (dataset spec, "Labels", "Audit").

Nothing here comes from the generator's bookkeeping: user messages, labels and metadata are put together a second time,
from the rules of the arena alone, so that a fault in the generator does not hide itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from arena_pipeline.arena.generation import GENERATOR_VERSION, generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import legal_actions, observe
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.protocol import oracle_broadcast
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.solver import Solution, solve
from arena_pipeline.arena.state import ARENA_VERSION, BLUE_AGENTS, Action, State
from arena_pipeline.provenance.hashing import canonical_json, sha256_text

RowKey = tuple[str, int, str, str]
"""(skill or "", seed, phase, agent id): what makes a row one of its kind."""

PLAIN: Final = ""
SKILL_BASES: Final = {"WAIT": 5_000_000, "SCAN": 5_002_000, "TRANSFER": 5_004_000}
SILENCE_BASE: Final = 6_000_000
SILENCE_COUNT: Final = 512
BASE_SHIFT: Final = 10_000
QUOTAS: Final = {"train": 24, "validation": 4, "test": 4}
EMPTY_LABEL: Final = '{"facts":[],"intent":null,"request_resource":0}'


def bucket_split(seed: int) -> str:
    """The split that the seed's bucket says."""
    bucket = int(sha256_text(f"arena-gen-v1:{seed}")[:8], 16) % 100
    return "train" if bucket < 90 else "validation" if bucket < 95 else "test"


class SeedFacts:
    """All that one seed and skill decide, each part worked out when it is first asked for."""

    def __init__(self, skill: str, seed: int) -> None:
        self.skill = skill
        self.seed = seed

    @cached_property
    def state(self) -> State:
        """The state."""
        return generate_mechanics_state(self.seed, self.skill) if self.skill else generate_state(self.seed)

    @cached_property
    def policy(self) -> Mapping[str, Action]:
        """What each BLUE agent does under independent_local."""
        return scripted_policy("independent_local", self.state, "BLUE")

    @cached_property
    def opponents(self) -> Mapping[str, Action]:
        """What RED does."""
        return scripted_policy("sequential_heuristic", self.state, "RED", "balanced")

    @cached_property
    def solution(self) -> Solution:
        """The exact solution against RED."""
        return solve(self.state, "BLUE", self.opponents)

    @cached_property
    def broadcasts(self) -> Mapping[str, Mapping[str, Any]]:
        """Each BLUE agent's oracle broadcast of its independent_local action."""
        return {agent_id: oracle_broadcast(self.state, agent_id, self.policy[agent_id]) for agent_id in BLUE_AGENTS}

    def displayed(self, agent_id: str) -> list[Action]:
        """The agent's legal actions in display order."""
        actions = legal_actions(self.state, agent_id)
        shift = (self.seed + BLUE_AGENTS.index(agent_id)) % len(actions)
        return [actions[(shift + position) % len(actions)] for position in range(len(actions))]

    def user_body(self, phase: str, agent_id: str, objective: str) -> dict[str, Any]:
        """The user message's object."""
        body: dict[str, Any] = {
            "phase": phase,
            "team_objective": objective,
            "observation": observe(self.state, agent_id),
            "legal_actions": [
                {"id": f"A{position}", **action.to_dict()} for position, action in enumerate(self.displayed(agent_id))
            ],
        }
        if phase == "ACT":
            senders = [] if self.skill else [sender for sender in BLUE_AGENTS if sender != agent_id]
            body["inbox"] = [{"sender": sender, "broadcast": self.broadcasts[sender]} for sender in senders]
        return body

    def label(self, phase: str, agent_id: str) -> str:
        """The label that an existing row of the agent must have."""
        if phase == "ACT":
            return canonical_json({"action_id": f"A{self.displayed(agent_id).index(self.policy[agent_id])}"})
        return EMPTY_LABEL if self.skill else canonical_json(self.broadcasts[agent_id])

    def broken_act_rules(self, agent_id: str, action: Action) -> Iterator[tuple[str, str]]:
        """The rules, each with its detail, that an ACT row of the agent breaks if its label is ``action``."""
        optimal = self.solution.acceptable[agent_id]
        if action not in optimal:
            yield "solver_optimal", f"{_words(action)} is in none of the {self.solution.optimal_count} optima"
        if len(optimal) > 1:
            yield "unique_optimum", f"{len(optimal)} actions of {agent_id} are optimal: {_list(optimal)}"
        if action != self.policy[agent_id]:
            yield (
                "prompt_identifiable",
                f"{_words(action)} is not the independent_local {_words(self.policy[agent_id])}",
            )
        if self.skill:
            if action.kind != self.skill:
                yield "targeted_skill", f"{_words(action)} is not a {self.skill}"
            return
        for sender in BLUE_AGENTS:
            other = self.policy[sender]
            if (
                sender != agent_id
                and action.kind != "WAIT"
                and (other.kind, other.target) == (action.kind, action.target)
            ):
                yield "conflicting_intent", f"{sender} means to {_words(other)} too"

    def rejection(self, agent_id: str) -> str | None:
        """Why the agent has no ACT row, under the name that the manifest counts it by; None if it must have one."""
        broken = {rule for rule, _ in self.broken_act_rules(agent_id, self.policy[agent_id])}
        if self.skill:
            return f"targeted_{self.skill.lower()}_rejected" if broken else None
        if "unique_optimum" in broken:
            return "ambiguous_optimal_action"
        if "solver_optimal" in broken:
            return "not_prompt_identifiable"
        return "conflicting_declared_intent" if broken else None

    def metadata(self, phase: str, agent_id: str, prompt_version: str) -> dict[str, Any]:
        """The metadata that an existing row of the agent must have."""
        body: dict[str, Any] = {
            "dataset_version": "arena-sft-v2",
            "arena_version": ARENA_VERSION,
            "generator_version": GENERATOR_VERSION,
            "prompt_version": prompt_version,
            "seed": self.seed,
            "split": bucket_split(self.seed),
            "phase": phase,
            "agent_id": agent_id,
        }
        if self.skill:
            body |= {"generator_mode": "targeted_mechanics", "targeted_skill": self.skill}
        if phase == "BROADCAST":
            body["label_source"] = "exact_empty_broadcast" if self.skill else "deterministic_observation_policy"
            return body
        body |= {
            "solver_reward": self.solution.reward,
            "solver_joint_actions_explored": self.solution.explored,
            "solver_optimal_count": self.solution.optimal_count,
        }
        if self.skill:
            body["label_source"] = "exact_joint_solver_and_unique_visible_mechanic"
        else:
            body["label_source"] = "exact_joint_solver_and_prompt_policy_agree"
            body["policy_reward"] = self.policy_reward
        return body

    @cached_property
    def policy_reward(self) -> float:
        """BLUE's reward when all four play independent_local."""
        return step(self.state, {**self.policy, **self.opponents}).rewards["BLUE"]


class Facts:
    """``SeedFacts`` by skill and seed, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], SeedFacts] = {}

    def of(self, skill: str, seed: int) -> SeedFacts:
        """The facts of a seed."""
        return self._made.setdefault((skill, seed), SeedFacts(skill, seed))


def plain_keys(facts: Facts, seeds: range, rejections: Counter[str]) -> Iterator[RowKey]:
    """The plain rows that the seeds must have, in generation order; dropped ACT rows are counted by reason."""
    for seed in seeds:
        for agent_id in BLUE_AGENTS:
            yield PLAIN, seed, "BROADCAST", agent_id
        of_seed = facts.of(PLAIN, seed)
        for agent_id in BLUE_AGENTS:
            reason = of_seed.rejection(agent_id)
            if reason is None:
                yield PLAIN, seed, "ACT", agent_id
            else:
                rejections[reason] += 1


def targeted_keys(facts: Facts, start_seed: int, rejections: Counter[str]) -> Iterator[RowKey]:
    """The targeted and silence rows that a dataset must have, in generation order."""
    for skill, base in SKILL_BASES.items():
        places = Counter(QUOTAS)
        seed = base + BASE_SHIFT * start_seed
        while places.total():
            split = bucket_split(seed)
            if places[split]:
                reason = facts.of(skill, seed).rejection("blue-0")
                if reason is None:
                    places[split] -= 1
                    yield skill, seed, "ACT", "blue-0"
                else:
                    rejections[reason] += 1
            seed += 1
    first = SILENCE_BASE + BASE_SHIFT * start_seed
    for seed in range(first, first + SILENCE_COUNT):
        yield "SILENCE", seed, "BROADCAST", "blue-0"


def _words(action: Action) -> str:
    return " ".join(str(part) for part in (action.kind, action.target) if part is not None)


def _list(actions: frozenset[Action]) -> str:
    return ", ".join(_words(action) for action in sorted(actions, key=lambda action: action.sort_key))
