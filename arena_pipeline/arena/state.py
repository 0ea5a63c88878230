"""What the game consists of: nodes, agents, observations, actions and whole states (arena-core-v1, "Objects").

Every object is immutable by convention: a turn builds new objects and leaves the old ones as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from arena_pipeline.errors import ArenaError
from arena_pipeline.provenance.hashing import sha256_json

ARENA_VERSION: Final = "arena-core-v1"

Team = Literal["BLUE", "RED"]
Owner = Literal["BLUE", "RED", "NEUTRAL"]

TEAMS: Final[tuple[Team, ...]] = ("BLUE", "RED")
OWNERS: Final = ("BLUE", "RED", "NEUTRAL")
STATUSES: Final = ("COMPROMISED", "EXPOSED", "FORTIFIED", "SECURE")
ACTION_KINDS: Final = ("CAPTURE", "FORTIFY", "PROBE", "RECOVER", "SCAN", "TRANSFER", "WAIT")
BLUE_AGENTS: Final = ("blue-0", "blue-1", "blue-2", "blue-3")
RED_AGENTS: Final = ("red-0", "red-1", "red-2", "red-3")
ALL_AGENTS: Final = BLUE_AGENTS + RED_AGENTS
TEAM_AGENTS: Final[Mapping[Team, tuple[str, ...]]] = {"BLUE": BLUE_AGENTS, "RED": RED_AGENTS}
MAX_RESOURCE: Final = 4
MAX_FORTIFICATION: Final = 2


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the network; ``neighbors`` is sorted and symmetric."""

    id: str
    neighbors: tuple[str, ...]
    owner: Owner
    value: int
    critical: bool
    fortification: int
    exposed: bool
    compromised: bool

    @property
    def status(self) -> str:
        """The first status that applies, in the order of ``STATUSES``."""
        if self.compromised:
            return "COMPROMISED"
        if self.exposed:
            return "EXPOSED"
        return "FORTIFIED" if self.fortification > 0 else "SECURE"

    def to_dict(self) -> dict[str, Any]:
        """The node's part of a state's dictionary form."""
        return {
            "id": self.id,
            "neighbors": list(self.neighbors),
            "owner": self.owner,
            "value": self.value,
            "critical": self.critical,
            "fortification": self.fortification,
            "exposed": self.exposed,
            "compromised": self.compromised,
        }


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: where it stands and how much resource (0..4) it has."""

    id: str
    team: Team
    position: str
    resource: int

    def to_dict(self) -> dict[str, Any]:
        """The agent's part of a state's dictionary form."""
        return {"id": self.id, "team": self.team, "position": self.position, "resource": self.resource}


@dataclass(frozen=True, slots=True)
class Observation:
    """What an agent saw of a node, and in which turn."""

    node: str
    owner: Owner
    status: str
    value: int
    critical: bool
    observed_turn: int

    def to_dict(self) -> dict[str, Any]:
        """The six fields, as a broadcast's fact holds them."""
        return {
            "node": self.node,
            "owner": self.owner,
            "status": self.status,
            "value": self.value,
            "critical": self.critical,
            "observed_turn": self.observed_turn,
        }


@dataclass(frozen=True, slots=True)
class Action:
    """One agent's choice for one turn."""

    kind: str
    target: str | None = None
    amount: int | None = None

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """Actions sort as (kind, target, amount); only WAIT has no target, so the fill-ins never decide."""
        return (self.kind, self.target or "", self.amount or 0)

    def to_dict(self) -> dict[str, Any]:
        """``{"type": kind}`` plus ``target`` and ``amount`` where set."""
        body: dict[str, Any] = {"type": self.kind}
        if self.target is not None:
            body["target"] = self.target
        if self.amount is not None:
            body["amount"] = self.amount
        return body


WAIT: Final = Action("WAIT")


@dataclass(frozen=True, slots=True)
class State:
    """A whole state; ``nodes`` keeps generation order, which decides the order of float sums."""

    turn: int
    nodes: Mapping[str, Node]
    agents: Mapping[str, Agent]
    knowledge: Mapping[str, Mapping[str, Observation]]


def observation_of(node: Node, turn: int) -> Observation:
    """The observation of a node as it is in ``turn``."""
    return Observation(node.id, node.owner, node.status, node.value, node.critical, turn)


def action_from_dict(body: Mapping[str, Any]) -> Action:
    """The action of a dictionary as ``Action.to_dict`` makes it; raises ``ArenaError`` for other keys."""
    unknown = set(body) - {"type", "target", "amount"}
    if unknown or "type" not in body:
        raise ArenaError(f"action {dict(body)!r}: allowed keys are type, target and amount, and type must be there")
    return Action(body["type"], body.get("target"), body.get("amount"))


def state_to_dict(state: State) -> dict[str, Any]:
    """A state's dictionary form ("Dictionary form")."""
    return {
        "turn": state.turn,
        "nodes": {key: node.to_dict() for key, node in state.nodes.items()},
        "agents": {key: agent.to_dict() for key, agent in state.agents.items()},
        "knowledge": {
            agent: {node: seen.to_dict() for node, seen in memory.items()} for agent, memory in state.knowledge.items()
        },
    }


def state_digest(state: State) -> str:
    """SHA-256 of the dictionary form's sorted-key compact JSON."""
    return sha256_json(state_to_dict(state))
