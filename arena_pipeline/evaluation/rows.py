"""One JSON row per case: every raw reply with its parse verdict, and every figure of the case.

Source: evaluation specification, "Frozen-arena evaluation of a model".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from arena_pipeline.arena.generation import GENERATOR_VERSION
from arena_pipeline.arena.manifests import Case, manifest_sha256
from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.parser import parse_action
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.arena.rules import redundant_agents, step
from arena_pipeline.arena.state import ARENA_VERSION, BLUE_AGENTS, WAIT, Action, state_digest
from arena_pipeline.evaluation.cases import OPTIMAL_TOLERANCE, SolvedCase, reward_difference, solved_case
from arena_pipeline.evaluation.conditions import (
    EVALUATOR_VERSION,
    PLAYS,
    ROTATED_PLAYS,
    Play,
    action_key,
    action_permutation,
    broadcast_key,
    broadcast_permutation,
    broadcast_verdicts,
    reply_to,
)
from arena_pipeline.serving.replies import reply_record
from arena_pipeline.serving.requests import Completion

CaseRow = dict[str, Any]

EFFECTS: Final = {
    "generated_minus_dropped": ("generated", "dropped"),
    "generated_minus_shuffled": ("generated", "shuffled"),
    "reference_minus_generated": ("reference", "generated"),
}
"""Paired reward effects of communication: name -> (condition, condition taken away from it)."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated on what: the manifest's name and cases, the prompts, and the provider's identity."""

    manifest: str
    cases: tuple[Case, ...]
    pack: PromptPack
    identity: Mapping[str, Any]

    def header(self) -> dict[str, Any]:
        """The fields that every row and the summary of an evaluation share."""
        return {
            "evaluator_version": EVALUATOR_VERSION,
            "arena_version": ARENA_VERSION,
            "generator_version": GENERATOR_VERSION,
            "manifest": self.manifest,
            "manifest_sha256": manifest_sha256(self.cases),
            "prompt_version": self.pack.version,
            "prompt_sha256": self.pack.sha256,
            "model": dict(self.identity),
        }


def score(subject: Subject, broadcasts: Mapping[str, Completion], actions: Mapping[str, Completion]) -> list[CaseRow]:
    """Score every case from the saved replies of both phases, by request key.

    Returns one row per case, in manifest order. Raises ``EvaluationError`` if any reply is missing.
    """
    header = subject.header()
    return [header | _case_row(case, broadcasts, actions) for case in subject.cases]


def _case_row(case: Case, broadcasts: Mapping[str, Completion], actions: Mapping[str, Completion]) -> CaseRow:
    solved = solved_case(case)
    solution = solved.solution
    verdicts = broadcast_verdicts(case, broadcasts)
    plays = {play.name: _play(solved, play, actions) for play in PLAYS}
    return {
        "seed": case.seed,
        "size": case.size,
        "style": case.style,
        "state_sha256": state_digest(solved.state),
        "red_actions": {agent: action.to_dict() for agent, action in sorted(solved.red_actions.items())},
        "solver": {
            "reward": solution.reward,
            "optimal_count": solution.optimal_count,
            "explored": solution.explored,
            "canonical": {agent: solution.canonical[agent].to_dict() for agent in BLUE_AGENTS},
        },
        "broadcasts": {
            agent: reply_record(reply_to(broadcast_key(case, agent), broadcasts), verdicts[agent])
            | {
                "permutation": broadcast_permutation(case, index),
                "facts": verdicts[agent].facts,
                "unsupported_facts": verdicts[agent].unsupported_facts,
                "empty": verdicts[agent].empty,
            }
            for index, agent in enumerate(BLUE_AGENTS)
        },
        "plays": plays,
        "order_consistent": _order_consistent(plays),
        "effects": {
            name: reward_difference(plays[left]["reward"], plays[right]["reward"])
            for name, (left, right) in EFFECTS.items()
        },
    }


def _play(solved: SolvedCase, play: Play, completions: Mapping[str, Completion]) -> dict[str, Any]:
    joint: dict[str, Action] = dict(solved.red_actions)
    replies: dict[str, dict[str, Any]] = {}
    for index, agent in enumerate(BLUE_AGENTS):
        permutation = action_permutation(solved.case, index, play)
        completion = reply_to(action_key(solved.case, play, agent), completions)
        verdict = parse_action(completion.text, displayed_actions(solved.state, agent, permutation))
        joint[agent] = verdict.value if verdict.valid else WAIT
        replies[agent] = reply_record(completion, verdict) | {
            "permutation": permutation,
            "action": joint[agent].to_dict(),
        }
    outcome = step(solved.state, joint)
    reward = outcome.rewards["BLUE"]
    regret = reward_difference(solved.solution.reward, reward)
    valid_replies = sum(reply["valid"] for reply in replies.values())
    return {
        "replies": replies,
        "valid_replies": valid_replies,
        "reward": reward,
        "regret": regret,
        "optimal": valid_replies == len(BLUE_AGENTS) and regret <= OPTIMAL_TOLERANCE,
        "redundant_agents": redundant_agents(solved.state, joint, "BLUE"),
        "duplicate_targets": outcome.duplicate_targets["BLUE"],
    }


def _order_consistent(plays: Mapping[str, dict[str, Any]]) -> bool:
    """Whether every agent's generated action is valid and the same for p = 0, 1 and 2."""
    rotations = ["generated", *(play.name for play in ROTATED_PLAYS)]
    return all(
        all(plays[name]["replies"][agent]["valid"] for name in rotations)
        and all(
            plays[name]["replies"][agent]["action"] == plays["generated"]["replies"][agent]["action"]
            for name in rotations
        )
        for agent in BLUE_AGENTS
    )


def rewards_of(rows: Sequence[CaseRow], play: str) -> list[float]:
    """BLUE's reward in each row's play of that name."""
    return [row["plays"][play]["reward"] for row in rows]


def regrets_of(rows: Sequence[CaseRow], play: str) -> list[float]:
    """The regret in each row's play of that name."""
    return [row["plays"][play]["regret"] for row in rows]
