"""A state and the actions to choose from as the integer tables that the compiled search reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from arena_pipeline.arena import _search
from arena_pipeline.arena._search import Bytes
from arena_pipeline.arena.rules import opportunity
from arena_pipeline.arena.state import ALL_AGENTS, TEAM_AGENTS, Action, State, Team

_KINDS: Final[Mapping[str, int]] = {
    "WAIT": _search.WAIT,
    "SCAN": _search.SCAN,
    "TRANSFER": _search.TRANSFER,
    "FORTIFY": _search.FORTIFY,
    "RECOVER": _search.RECOVER,
    "PROBE": _search.PROBE,
    "CAPTURE": _search.CAPTURE,
}
_SIDES: Final[Mapping[Team, Mapping[str, int]]] = {
    "BLUE": {"BLUE": _search.MINE, "RED": _search.THEIRS, "NEUTRAL": _search.NEUTRAL},
    "RED": {"RED": _search.MINE, "BLUE": _search.THEIRS, "NEUTRAL": _search.NEUTRAL},
}
_AGENTS: Final[Mapping[Team, tuple[str, ...]]] = {
    "BLUE": ALL_AGENTS,
    "RED": TEAM_AGENTS["RED"] + TEAM_AGENTS["BLUE"],
}


class Tables:
    """The arguments of ``_search.search``, and what its answers mean."""

    def __init__(
        self, state: State, team: Team, options: Sequence[Sequence[Action]], replies: Iterable[Action]
    ) -> None:
        """``options``: each own agent's legal actions; ``replies``: each opponent's action; agents in sorted order."""
        self._options = options
        index: dict[str | None, int] = {node_id: number for number, node_id in enumerate(state.nodes)}
        node_width = _search.VISIBLE + len(index)
        agent_width = _search.AGENT_COLUMNS + len(index)
        nodes, agents = bytearray(len(index) * node_width), bytearray(len(ALL_AGENTS) * agent_width)
        sides = _SIDES[team]
        for number, node in enumerate(state.nodes.values()):
            row = number * node_width
            nodes[row : row + _search.COMPROMISED + 1] = bytes(
                (sides[node.owner], node.value, node.critical, node.fortification, node.exposed, node.compromised)
            )
            for visible in (node.id, *node.neighbors):
                nodes[row + _search.VISIBLE + index[visible]] = 1
        for number, agent_id in enumerate(_AGENTS[team]):
            agent = state.agents[agent_id]
            row = number * agent_width
            agents[row : row + _search.RESOURCE + 1] = bytes((index[agent.position], agent.resource))
            for node_id, seen in state.knowledge[agent_id].items():
                cell = index[node_id] * node_width + _search.REMEMBERED + number
                nodes[cell] = 1 + opportunity(seen, agent.team)
        places = index | {agent_id: number for number, agent_id in enumerate(_AGENTS[team])} | {None: 0}
        actions, first = bytearray(), bytearray(1)
        for offered in (*options, *([reply] for reply in replies)):
            for action in offered:
                actions += bytes((_KINDS[action.kind], places[action.target]))
            first.append(len(actions) // 2)
        self.arrays: Final[tuple[Bytes, ...]] = (
            _table(nodes, node_width),
            _table(agents, agent_width),
            _table(actions, 2),
            np.frombuffer(first, np.uint8),
            np.zeros(len(actions) // 2, np.uint8),
        )

    def joint_action(self, number: int) -> list[Action]:
        """The joint action with a number in product order, the last agent's choice changing fastest."""
        chosen: list[Action] = []
        for actions in reversed(self._options):
            number, choice = divmod(number, len(actions))
            chosen.append(actions[choice])
        return chosen[::-1]

    def acceptable(self) -> list[frozenset[Action]]:
        """Each own agent's actions that ``search`` marked."""
        marks = iter(self.arrays[-1].tolist())
        return [frozenset(action for action in actions if next(marks)) for actions in self._options]


def _table(cells: bytearray, columns: int) -> Bytes:
    return np.frombuffer(cells, np.uint8).reshape(-1, columns)
