"""Writing the texts agents exchange: broadcasts, action replies, the oracle's broadcasts (dataset spec, "Protocol").

A broadcast is a dictionary ``{"facts": [...], "intent": {...} | None, "request_resource": 0 | 1}``; its facts are
``Observation.to_dict`` forms and its intent is an ``Action.to_dict`` form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from arena_pipeline.arena.state import BLUE_AGENTS, WAIT, Action, Observation, State
from arena_pipeline.errors import ArenaError
from arena_pipeline.provenance.hashing import canonical_json

MAX_FACTS: Final = 3

BROADCAST_KEYS: Final = frozenset({"facts", "intent", "request_resource"})
ACTION_KEYS: Final = frozenset({"action_id"})

EMPTY_BROADCAST: Final[Mapping[str, Any]] = {"facts": [], "intent": None, "request_resource": 0}
"""What a silent agent says, and what an invalid broadcast counts as; to be read only."""


def encode_broadcast(broadcast: Mapping[str, Any]) -> str:
    """A broadcast's text: key-sorted compact JSON."""
    return canonical_json(broadcast)


def encode_action(action: Action, displayed: Sequence[Action]) -> str:
    """The reply that chooses ``action`` among the displayed ones; raises ``ArenaError`` if it is not displayed."""
    for position, candidate in enumerate(displayed):
        if candidate == action:
            return canonical_json({"action_id": action_id(position)})
    raise ArenaError(f"action {action.to_dict()!r} is not among the {len(displayed)} displayed actions")


def action_id(position: int) -> str:
    """The id under which the action at a display position is shown."""
    return f"A{position}"


def displayed_dicts(displayed: Sequence[Action]) -> list[dict[str, Any]]:
    """The displayed actions as a prompt holds them: each action's dictionary plus its ``id``."""
    return [{**action.to_dict(), "id": action_id(position)} for position, action in enumerate(displayed)]


def teammates(agent_id: str) -> tuple[str, ...]:
    """The other BLUE agents, sorted; raises ``ArenaError`` for an id that is not one of the four BLUE agents."""
    if agent_id not in BLUE_AGENTS:
        raise ArenaError(f"agent {agent_id!r}: prompts are for the BLUE agents {', '.join(BLUE_AGENTS)}")
    return tuple(other for other in BLUE_AGENTS if other != agent_id)


def declared_intent(intent: Action) -> dict[str, Any] | None:
    """What an agent that means to take ``intent`` declares: nothing for WAIT, else the action's dictionary."""
    return None if intent == WAIT else intent.to_dict()


def oracle_broadcast(state: State, agent_id: str, intent: Action) -> dict[str, Any]:
    """The deterministic reference broadcast of an agent that means to take ``intent`` (dataset spec, "Labels")."""
    agent = state.agents[agent_id]

    def rank(seen: Observation) -> tuple[bool, bool, int, str]:
        noteworthy = seen.status in ("COMPROMISED", "EXPOSED") or seen.critical
        return (seen.node == intent.target, noteworthy, seen.observed_turn, seen.node)

    facts = [
        seen.to_dict()
        for seen in sorted(state.knowledge[agent_id].values(), key=rank, reverse=True)
        if seen.node == intent.target or seen.owner != agent.team or seen.status != "SECURE" or seen.critical
    ]
    return {
        "facts": facts[:MAX_FACTS],
        "intent": declared_intent(intent),
        "request_resource": int(agent.resource == 0 and intent == WAIT),
    }
