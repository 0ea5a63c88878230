"""What a model is asked in the frozen evaluation: the broadcast phase, then the action phase in its conditions.

Both plans are pure functions: of the cases and the prompt pack, and for actions of the broadcast replies too.

Source: evaluation specification, "Frozen-arena evaluation of a model" (``arena-eval-v2``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from arena_pipeline.arena.manifests import Case
from arena_pipeline.arena.parser import Verdict, parse_broadcast
from arena_pipeline.arena.prompts import PromptPack, action_prompt, broadcast_prompt
from arena_pipeline.arena.protocol import EMPTY_BROADCAST
from arena_pipeline.arena.state import BLUE_AGENTS
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.cases import shuffled_source, solved_case
from arena_pipeline.serving.requests import ChatPrompt, Completion, Request

EVALUATOR_VERSION: Final = "arena-eval-v2"

Broadcasts = Mapping[str, Mapping[str, Any]]
"""Sender -> the broadcast that counts as sent."""


class Play(NamedTuple):
    """One way to play a case: where its inboxes come from, and the rotation p added to every agent's display order."""

    condition: str
    rotation: int

    @property
    def name(self) -> str:
        """The play's name in keys, rows and summaries: its condition, with ``-p1`` or ``-p2`` where rotated."""
        return f"{self.condition}-p{self.rotation}" if self.rotation else self.condition


CONDITIONS: Final = ("generated", "dropped", "reference", "shuffled")
ROTATED_PLAYS: Final = (Play("generated", 1), Play("generated", 2))
PLAYS: Final = (*(Play(condition, 0) for condition in CONDITIONS), *ROTATED_PLAYS)


def case_name(case: Case) -> str:
    """A case's name in request keys and messages: seed, size and style."""
    return f"{case.seed}-{case.size}-{case.style}"


def broadcast_key(case: Case, agent_id: str) -> str:
    """The request key of an agent's broadcast."""
    return f"{case_name(case)}/broadcast/{agent_id}"


def action_key(case: Case, play: Play, agent_id: str) -> str:
    """The request key of an agent's action in one play."""
    return f"{case_name(case)}/{play.name}/{agent_id}"


def broadcast_permutation(case: Case, agent_index: int) -> int:
    """The display permutation of a broadcast prompt: seed + j."""
    return case.seed + agent_index


def action_permutation(case: Case, agent_index: int, play: Play) -> int:
    """The display permutation of an action prompt: seed + j + p."""
    return case.seed + agent_index + play.rotation


def plan_broadcasts(cases: Sequence[Case], pack: PromptPack) -> list[Request]:
    """The broadcast phase's requests: four per case, one per BLUE agent."""
    return [
        Request(
            key=broadcast_key(case, agent),
            phase="BROADCAST",
            prompt=ChatPrompt(
                *broadcast_prompt(pack, solved_case(case).state, agent, broadcast_permutation(case, index))
            ),
            agent_id=agent,
            case=case,
            permutation=broadcast_permutation(case, index),
            condition="broadcast",
        )
        for case in cases
        for index, agent in enumerate(BLUE_AGENTS)
    ]


def plan_actions(cases: Sequence[Case], pack: PromptPack, broadcasts: Mapping[str, Completion]) -> list[Request]:
    """The action phase's requests: 24 per case, one per BLUE agent and play, given the broadcast replies by key.

    Raises ``EvaluationError`` if a broadcast reply is missing.
    """
    requests = []
    for case_index, case in enumerate(cases):
        state = solved_case(case).state
        for play in PLAYS:
            inbox = inbox_of(cases, case_index, play.condition, broadcasts)
            for agent_index, agent in enumerate(BLUE_AGENTS):
                permutation = action_permutation(case, agent_index, play)
                requests.append(
                    Request(
                        key=action_key(case, play, agent),
                        phase="ACT",
                        prompt=ChatPrompt(*action_prompt(pack, state, agent, permutation, inbox)),
                        agent_id=agent,
                        case=case,
                        permutation=permutation,
                        condition=play.condition,
                    )
                )
    return requests


def inbox_of(
    cases: Sequence[Case], case_index: int, condition: str, broadcasts: Mapping[str, Completion]
) -> Broadcasts:
    """What each sender says to its teammates in a condition; ``EvaluationError`` for an unknown one."""
    case = cases[case_index]
    if condition == "generated":
        return {sender: counted(verdict) for sender, verdict in broadcast_verdicts(case, broadcasts).items()}
    if condition == "dropped":
        return dict.fromkeys(BLUE_AGENTS, EMPTY_BROADCAST)
    if condition == "reference":
        return solved_case(case).reference_broadcasts()
    if condition == "shuffled":
        return shuffled_source(cases, case_index).reference_broadcasts()
    raise EvaluationError(f"condition {condition!r}: allowed are {', '.join(CONDITIONS)}")


def broadcast_verdicts(case: Case, broadcasts: Mapping[str, Completion]) -> dict[str, Verdict]:
    """The strict parser's verdict on each agent's broadcast reply; ``EvaluationError`` if a reply is missing."""
    state = solved_case(case).state
    return {
        agent: parse_broadcast(reply_to(broadcast_key(case, agent), broadcasts).text, state, agent)
        for agent in BLUE_AGENTS
    }


def counted(verdict: Verdict) -> Mapping[str, Any]:
    """The broadcast that counts as sent: the parsed one, or the empty one where the reply was invalid."""
    broadcast: Mapping[str, Any] = verdict.value if verdict.valid else EMPTY_BROADCAST
    return broadcast


def reply_to(key: str, completions: Mapping[str, Completion]) -> Completion:
    """The reply to a request; ``EvaluationError`` names it if it is missing, because no case leaves the denominator."""
    try:
        return completions[key]
    except KeyError:
        raise EvaluationError(
            f"no reply to {key}: every case of the manifest must be answered; resume the run"
        ) from None
