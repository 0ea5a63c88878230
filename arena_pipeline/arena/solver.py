"""The exact solver (arena-core-v1, "Exact solver"): a state as integer arrays for the compiled search, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from arena_pipeline.arena.observation import legal_actions
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.rules import is_legal
from arena_pipeline.arena.state import TEAM_AGENTS, WAIT, Action, State, Team
from arena_pipeline.errors import ArenaError

_OPPONENT: Final[Mapping[Team, Team]] = {"BLUE": "RED", "RED": "BLUE"}


@dataclass(frozen=True, slots=True)
class Solution:
    """What the exhaustive search found; ``reward`` has the bits of the first optimum in product order."""

    reward: float
    optimal_count: int
    explored: int
    canonical: dict[str, Action]
    acceptable: dict[str, frozenset[Action]]


def solve(
    state: State,
    team: Team = "BLUE",
    opponent_actions: Mapping[str, Action] | None = None,
    style: str = "balanced",
) -> Solution:
    """The best joint actions of a team against given actions of its opponents, out of the product of its legal sets.

    The opponents default to their ``sequential_heuristic`` in ``style``. One left out waits; an illegal action becomes
    WAIT and costs its team 1, as in ``step``. Raises ``ArenaError`` for an agent that is not one of the opponents.
    """
    # Imported here: numba alone takes longer to load than most commands that never solve take altogether.
    from arena_pipeline.arena._encoding import Tables
    from arena_pipeline.arena._search import search

    opponent = _OPPONENT[team]
    others = TEAM_AGENTS[opponent]
    invalid = 0
    if opponent_actions is None:
        replies = list(scripted_policy("sequential_heuristic", state, opponent, style).values())
    else:
        strangers = sorted(agent_id for agent_id in opponent_actions if agent_id not in others)
        if strangers:
            raise ArenaError(f"agent {strangers[0]!r} is not an opponent of {team}; they are {', '.join(others)}")
        replies = [opponent_actions.get(agent_id, WAIT) for agent_id in others]
        for number, agent_id in enumerate(others):
            if not is_legal(replies[number], legal_actions(state, agent_id)):
                replies[number] = WAIT
                invalid += 1

    own = TEAM_AGENTS[team]
    tables = Tables(state, team, [legal_actions(state, agent_id) for agent_id in own], replies)
    reward, optimal_count, explored, canonical = search(*tables.arrays)
    return Solution(
        reward=reward + invalid,
        optimal_count=optimal_count,
        explored=explored,
        canonical=dict(zip(own, tables.joint_action(canonical), strict=True)),
        acceptable=dict(zip(own, tables.acceptable(), strict=True)),
    )
