"""The rows that each seed gives, with their labels (dataset specification, "Labels").

Plain rows come from states as they are generated; targeted rows teach skills that plain states seldom show, and silence
rows teach that saying nothing is fine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from arena_pipeline.arena.generation import GENERATOR_VERSION, generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.prompts import PromptPack, action_prompt, broadcast_prompt
from arena_pipeline.arena.protocol import EMPTY_BROADCAST, encode_action, encode_broadcast, oracle_broadcast
from arena_pipeline.arena.rules import step
from arena_pipeline.arena.solver import Solution, solve
from arena_pipeline.arena.state import ARENA_VERSION, BLUE_AGENTS, WAIT, Action
from arena_pipeline.sft.metadata import ACTION_SKILLS, DATASET_VERSION, LABEL_SOURCES, SILENCE, TARGETED_MODE
from arena_pipeline.sft.rows import Row
from arena_pipeline.sft.splits import split_for_seed

SKILL_QUOTAS: Final = {"train": 24, "validation": 4, "test": 4}
"""How many rows of each targeted skill a split gets."""
ROWS_PER_SKILL: Final = sum(SKILL_QUOTAS.values())
SILENCE_ROWS: Final = 512

_ACTOR: Final = BLUE_AGENTS[0]
_FIRST_SKILL_SEED: Final = 5_000_000
_SEEDS_PER_SKILL: Final = 2_000
_FIRST_SILENCE_SEED: Final = 6_000_000
_SHIFT_PER_START_SEED: Final = 10_000


def first_skill_seed(skill: str, start_seed: int) -> int:
    """The seed of the first attempt at a targeted skill, in a build that starts at ``start_seed``."""
    return _FIRST_SKILL_SEED + _SEEDS_PER_SKILL * ACTION_SKILLS.index(skill) + _SHIFT_PER_START_SEED * start_seed


def first_silence_seed(start_seed: int) -> int:
    """The seed of the first silence row, in a build that starts at ``start_seed``."""
    return _FIRST_SILENCE_SEED + _SHIFT_PER_START_SEED * start_seed


def targeted_seed_ranges(start_seed: int) -> list[range]:
    """The seeds that targeted and silence rows of a build are taken from."""
    first = first_silence_seed(start_seed)
    return [
        range(first_skill_seed(ACTION_SKILLS[0], start_seed), first_skill_seed(ACTION_SKILLS[-1], start_seed) + 2_000),
        range(first, first + SILENCE_ROWS),
    ]


def plain_rows(pack: PromptPack, seed: int, rejections: Counter[str]) -> Iterator[Row]:
    """The four BROADCAST rows of a seed, then its ACT rows; each ACT row dropped is counted by its reason."""
    state = generate_state(seed)
    intents = scripted_policy("independent_local", state, "BLUE")
    broadcasts = {agent_id: oracle_broadcast(state, agent_id, intents[agent_id]) for agent_id in BLUE_AGENTS}
    common = _metadata(pack, seed)
    for index, agent_id in enumerate(BLUE_AGENTS):
        system, user = broadcast_prompt(pack, state, agent_id, seed + index)
        yield Row.of(
            system,
            user,
            encode_broadcast(broadcasts[agent_id]),
            _of_kind(common, "BROADCAST", agent_id, targeted=False),
        )

    solution = solve(state)
    rewards: dict[str, Any] = {}
    for index, agent_id in enumerate(BLUE_AGENTS):
        reason = _rejection(solution, intents, agent_id)
        if reason is not None:
            rejections[reason] += 1
            continue
        if not rewards:
            opponents = scripted_policy("sequential_heuristic", state, "RED")
            rewards = {
                **_solver_fields(solution),
                "policy_reward": step(state, {**opponents, **intents}).rewards["BLUE"],
            }
        permutation = seed + index
        system, user = action_prompt(pack, state, agent_id, permutation, broadcasts)
        label = encode_action(intents[agent_id], displayed_actions(state, agent_id, permutation))
        yield Row.of(system, user, label, {**_of_kind(common, "ACT", agent_id, targeted=False), **rewards})


def _rejection(solution: Solution, intents: dict[str, Action], agent_id: str) -> str | None:
    """Why an agent's ACT row is dropped: the first reason that holds, or None."""
    intent = intents[agent_id]
    if len(solution.acceptable[agent_id]) > 1:
        return "ambiguous_optimal_action"
    if intent not in solution.acceptable[agent_id]:
        return "not_prompt_identifiable"
    others = (other for sender, other in intents.items() if sender != agent_id)
    if intent != WAIT and any((other.kind, other.target) == (intent.kind, intent.target) for other in others):
        return "conflicting_declared_intent"
    return None


def skill_rows(pack: PromptPack, skill: str, start_seed: int, rejections: Counter[str]) -> Iterator[Row]:
    """The targeted ACT rows of blue-0 for one skill, in the order of their seeds, until every quota is full."""
    open_places = dict(SKILL_QUOTAS)
    seed = first_skill_seed(skill, start_seed)
    while any(open_places.values()):
        split = split_for_seed(seed)
        if open_places[split]:
            state = generate_mechanics_state(seed, skill)
            intent = scripted_policy("independent_local", state, "BLUE")[_ACTOR]
            solution = solve(state)
            if intent.kind == skill and solution.acceptable[_ACTOR] == {intent}:
                open_places[split] -= 1
                system, user = action_prompt(pack, state, _ACTOR, seed, None)
                label = encode_action(intent, displayed_actions(state, _ACTOR, seed))
                metadata = _of_kind(_metadata(pack, seed), "ACT", _ACTOR, targeted=True)
                yield Row.of(system, user, label, {**metadata, "targeted_skill": skill, **_solver_fields(solution)})
            else:
                rejections[f"targeted_{skill.lower()}_rejected"] += 1
        seed += 1


def silence_rows(pack: PromptPack, start_seed: int) -> Iterator[Row]:
    """The BROADCAST rows of blue-0 whose label is the empty broadcast."""
    first = first_silence_seed(start_seed)
    label = encode_broadcast(EMPTY_BROADCAST)
    for seed in range(first, first + SILENCE_ROWS):
        system, user = broadcast_prompt(pack, generate_mechanics_state(seed, SILENCE), _ACTOR, seed)
        metadata = _of_kind(_metadata(pack, seed), "BROADCAST", _ACTOR, targeted=True)
        yield Row.of(system, user, label, {**metadata, "targeted_skill": SILENCE})


def _metadata(pack: PromptPack, seed: int) -> dict[str, Any]:
    return {
        "dataset_version": DATASET_VERSION,
        "arena_version": ARENA_VERSION,
        "generator_version": GENERATOR_VERSION,
        "prompt_version": pack.version,
        "seed": seed,
        "split": split_for_seed(seed),
    }


def _of_kind(common: dict[str, Any], phase: str, agent_id: str, *, targeted: bool) -> dict[str, Any]:
    metadata = {**common, "phase": phase, "agent_id": agent_id, "label_source": LABEL_SOURCES[phase, targeted]}
    return {**metadata, "generator_mode": TARGETED_MODE} if targeted else metadata


def _solver_fields(solution: Solution) -> dict[str, Any]:
    return {
        "solver_reward": solution.reward,
        "solver_joint_actions_explored": solution.explored,
        "solver_optimal_count": solution.optimal_count,
    }
