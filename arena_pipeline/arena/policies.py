"""The scripted policies (arena-core-v1, "Scripted policies"): baselines, and RED as the opponent."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from arena_pipeline.arena.observation import legal_actions
from arena_pipeline.arena.state import BLUE_AGENTS, TEAM_AGENTS, WAIT, Action, State, Team
from arena_pipeline.errors import ArenaError

STYLES: Final = ("balanced", "aggressive", "defensive")
SCRIPTED_POLICIES: Final = ("wait", "independent_local", "sequential_heuristic")

Priority = tuple[int, str, str]
"""(score, kind, target or own position); higher is better, compared as tuples."""

_STYLE_BONUS: Final[Mapping[str, Mapping[str, int]]] = {
    "balanced": {},
    "aggressive": {"CAPTURE": 6, "PROBE": 4, "FORTIFY": -2, "RECOVER": -1},
    "defensive": {"RECOVER": 6, "FORTIFY": 5, "CAPTURE": -2, "PROBE": -1},
}


def local_priority(state: State, agent_id: str, action: Action, style: str = "balanced") -> Priority:
    """How much a legal action appeals to an agent that looks at its own observations only ("Local priority").

    Raises ``ArenaError`` for a style that is not one of ``STYLES``.
    """
    if style not in _STYLE_BONUS:
        raise _unknown_style(style)
    score = _base_score(state, agent_id, action) + _STYLE_BONUS[style].get(action.kind, 0)
    return (score, action.kind, action.target or state.agents[agent_id].position)


def _unknown_style(style: str) -> ArenaError:
    return ArenaError(f"style {style!r}: allowed are {', '.join(STYLES)}")


def _base_score(state: State, agent_id: str, action: Action) -> int:
    kind, target = action.kind, action.target
    if target is None:
        return 0
    if kind == "SCAN":
        return 2
    if kind == "TRANSFER":
        return 3 + 8 * (state.agents[target].resource == 0) + 2 * (state.agents[agent_id].resource > 1)
    seen = state.knowledge[agent_id][target]
    if kind == "RECOVER":
        return 12 + seen.value + 3 * seen.critical
    if kind == "FORTIFY":
        return 7 + seen.value + 3 * seen.critical
    exposed = seen.status == "EXPOSED"
    if kind == "CAPTURE":
        return 9 + seen.value + 2 * seen.critical if exposed else 1
    return 1 if exposed else 8 + seen.value + 2 * seen.critical


def scripted_policy(name: str, state: State, team: Team, style: str = "balanced") -> dict[str, Action]:
    """The action of each agent of a team under a scripted policy, one of ``SCRIPTED_POLICIES``.

    Raises ``ArenaError`` for another name or style.
    """
    if style not in _STYLE_BONUS:
        raise _unknown_style(style)
    if name == "wait":
        return dict.fromkeys(TEAM_AGENTS[team], WAIT)
    if name == "independent_local":
        return {agent_id: _best(state, agent_id, style, frozenset()) for agent_id in TEAM_AGENTS[team]}
    if name == "sequential_heuristic":
        chosen: dict[str, Action] = {}
        for agent_id in TEAM_AGENTS[team]:
            claimed = frozenset(chosen.values()) - {WAIT}
            chosen[agent_id] = _best(state, agent_id, style, claimed)
        return chosen
    raise ArenaError(f"policy {name!r}: allowed are {', '.join(SCRIPTED_POLICIES)}")


def _best(state: State, agent_id: str, style: str, claimed: frozenset[Action]) -> Action:
    # A claim is of (kind, target), and the amount follows from the kind, so whole actions can be compared.
    free = (action for action in legal_actions(state, agent_id) if action not in claimed)
    return max(free, key=lambda action: local_priority(state, agent_id, action, style))


def random_legal_policy(state: State, seed: int, repeat: int) -> dict[str, Action]:
    """BLUE's actions under ``random_legal`` in repeat ``repeat`` of the case with ``seed``."""
    rng = random.Random(seed * 10_000 + repeat)
    return {agent_id: rng.choice(legal_actions(state, agent_id)) for agent_id in BLUE_AGENTS}
