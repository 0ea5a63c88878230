"""One simultaneous turn and what it is worth (arena-core-v1, "One simultaneous turn").

Rewards end up in hashed rows, so every float addition below is in the order that the specification names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from arena_pipeline.arena.observation import legal_actions
from arena_pipeline.arena.state import (
    ALL_AGENTS,
    MAX_FORTIFICATION,
    MAX_RESOURCE,
    TEAM_AGENTS,
    TEAMS,
    WAIT,
    Action,
    Agent,
    Node,
    Observation,
    State,
    Team,
    observation_of,
)
from arena_pipeline.errors import ArenaError

PAID_KINDS: Final = frozenset(("PROBE", "CAPTURE", "FORTIFY", "RECOVER"))
SCAN_BONUS: Final = 0.10
REWARD_TOLERANCE: Final = 1e-12
"""Rewards closer than this are the same reward: they lie on a grid of 0.05 up to rounding noise."""


class Event(NamedTuple):
    """One thing that happened in a turn; ``target`` is a node, an agent (TRANSFER) or None."""

    kind: str
    actor: str
    target: str | None
    success: bool
    detail: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one turn led to; lists are in the order of the specification, ``invalid_agents`` sorted."""

    state: State
    rewards: dict[Team, float]
    events: list[Event]
    invalid_agents: list[str]
    duplicate_targets: dict[Team, list[str]]


def step(state: State, joint_actions: Mapping[str, Action]) -> StepResult:
    """Play one simultaneous turn; ``joint_actions`` maps agent ids to actions.

    An illegal action becomes WAIT and marks its agent invalid; an agent left out waits and is not invalid.
    Raises ``ArenaError`` for an agent id that the state does not have.
    """
    turn = _Turn(state, joint_actions)
    turn.pay_and_transfer()
    turn.recover_and_fortify()
    turn.scan()
    turn.probe()
    turn.capture()
    after = turn.finish()
    return StepResult(after, turn.rewards(after), turn.events, turn.invalid, turn.duplicate_targets())


def is_legal(action: Action, legal: Iterable[Action]) -> bool:
    """Whether an action is one of ``legal``; a boolean or float amount is not the integer it equals."""
    return (action.amount is None or type(action.amount) is int) and action in legal


def team_value(state: State, team: Team) -> float:
    """The value of a state to a team ("Team value"): node terms in insertion order, then the resource potentials."""
    blue = _blue_value(state)
    # RED's running total has the same terms with the opposite sign, so each rounding is mirrored exactly.
    return blue if team == "BLUE" else 0.0 - blue


def _blue_value(state: State) -> float:
    total = 0.0
    for node in state.nodes.values():
        if node.owner == "NEUTRAL":
            continue
        sign = 1.0 if node.owner == "BLUE" else -1.0
        weight = node.value + node.critical
        total += sign * weight
        total += sign * (0.15 * node.fortification)
        if node.exposed:
            total -= sign * (0.25 * weight)
        if node.compromised:
            total -= sign * (0.75 * weight)
    return total + (_resource_potential(state, "BLUE") - _resource_potential(state, "RED"))


def _resource_potential(state: State, team: Team) -> float:
    total = 0.0
    for agent_id in TEAM_AGENTS[team]:
        if state.agents[agent_id].resource > 0:
            total += 0.05 * max(opportunity(seen, team) for seen in state.knowledge[agent_id].values())
    return total


def opportunity(seen: Observation, team: Team) -> int:
    """How much a known node invites an agent with resource to act on it ("Resource potential")."""
    own = seen.owner == team
    if seen.status == ("COMPROMISED" if own else "EXPOSED"):
        return 3 + seen.value
    if not own:
        return 2 + seen.value
    return 1 + seen.value if seen.critical else 0


def redundant_agents(state: State, joint_actions: Mapping[str, Action], team: Team) -> list[str]:
    """The team's agents, sorted, whose action WAIT would replace without loss of team reward; WAIT itself aside."""
    reward = step(state, joint_actions).rewards[team]
    return [
        agent_id
        for agent_id in TEAM_AGENTS[team]
        if joint_actions.get(agent_id, WAIT).kind != "WAIT"
        and step(state, {**joint_actions, agent_id: WAIT}).rewards[team] >= reward - REWARD_TOLERANCE
    ]


class _Turn:
    """A turn in progress: working copies of the state's tables, and what was recorded on the way."""

    def __init__(self, state: State, joint_actions: Mapping[str, Action]) -> None:
        unknown = sorted(agent_id for agent_id in joint_actions if agent_id not in state.agents)
        if unknown:
            raise ArenaError(f"agent {unknown[0]!r} is not in the state; its agents are {', '.join(state.agents)}")
        self.before = state
        self.nodes: dict[str, Node] = dict(state.nodes)
        self.agents: dict[str, Agent] = dict(state.agents)
        self.resources = {agent_id: agent.resource for agent_id, agent in state.agents.items()}
        self.knowledge: dict[str, dict[str, Observation]] = {
            agent_id: dict(memory) for agent_id, memory in state.knowledge.items()
        }
        self.events: list[Event] = []
        self.invalid: list[str] = []
        self.bonus: dict[Team, float] = dict.fromkeys(TEAMS, 0.0)
        # kind -> [(agent, target)] in agent order, of the actions that are executed; WAIT does nothing and is left out.
        self.moves: dict[str, list[tuple[str, str]]] = {}
        for agent_id in ALL_AGENTS:
            action = joint_actions.get(agent_id, WAIT)
            if action == WAIT:
                continue
            if not is_legal(action, legal_actions(state, agent_id)):
                self.invalid.append(agent_id)
                self.events.append(Event("INVALID", agent_id, action.target, False, action.kind))
            elif action.target is not None:
                self.moves.setdefault(action.kind, []).append((agent_id, action.target))

    def pay_and_transfer(self) -> None:
        for kind in PAID_KINDS:
            for agent_id, _ in self.moves.get(kind, ()):
                self.resources[agent_id] -= 1
        for sender, receiver in self.moves.get("TRANSFER", ()):
            accepted = self.resources[receiver] < MAX_RESOURCE
            if accepted:
                self.resources[sender] -= 1
                self.resources[receiver] += 1
            self.events.append(Event("TRANSFER", sender, receiver, accepted, "" if accepted else "receiver_full"))

    def recover_and_fortify(self) -> None:
        """No owner check: legality came from the agent's memory, which may be false in targeted states."""
        moves = [(agent_id, kind, target) for kind in ("RECOVER", "FORTIFY") for agent_id, target in self._of(kind)]
        for agent_id, kind, target in sorted(moves):
            node = self.nodes[target]
            if kind == "RECOVER":
                self.nodes[target] = replace(node, compromised=False, exposed=False)
            else:
                raised = min(MAX_FORTIFICATION, node.fortification + 1)
                self.nodes[target] = replace(node, fortification=raised, exposed=False)
            self.events.append(Event(kind, agent_id, target, True, ""))

    def scan(self) -> None:
        for agent_id, target in self._of("SCAN"):
            unknown = target not in self.knowledge[agent_id]
            if unknown:
                self.bonus[self.agents[agent_id].team] += SCAN_BONUS
            self.knowledge[agent_id][target] = observation_of(self.nodes[target], self.before.turn)
            self.events.append(Event("SCAN", agent_id, target, unknown, ""))

    def probe(self) -> None:
        for target, attackers in self._by_target("PROBE"):
            node = self.nodes[target]
            shields = node.fortification
            counting = [agent_id for agent_id in attackers if self.agents[agent_id].team != node.owner]
            for agent_id in attackers:
                if agent_id not in counting:
                    self.events.append(Event("PROBE", agent_id, target, False, "owner_changed"))
            for number, agent_id in enumerate(counting):
                detail = "fortification_reduced" if number < shields else "exposed"
                self.events.append(Event("PROBE", agent_id, target, True, detail))
            if counting:
                left = max(0, shields - len(counting))
                self.nodes[target] = replace(node, fortification=left, exposed=len(counting) > shields)

    def capture(self) -> None:
        for target, attackers in self._by_target("CAPTURE"):
            node = self.nodes[target]
            teams = {self.agents[agent_id].team for agent_id in attackers}
            taker = self.agents[attackers[0]].team
            open_to_taker = node.exposed and node.fortification == 0 and node.owner != taker
            if len(teams) > 1:
                failure = "contested"
            else:
                failure = "" if open_to_taker else "not_exposed"
            if not failure:
                self.nodes[target] = replace(node, owner=taker, exposed=False, compromised=False)
                for agent_id in attackers:
                    self.agents[agent_id] = replace(self.agents[agent_id], position=target)
            self.events += [Event("CAPTURE", agent_id, target, not failure, failure) for agent_id in attackers]

    def finish(self) -> State:
        """The state after the turn: resources booked, own positions and their known neighbours observed again."""
        turn = self.before.turn + 1
        for agent_id, agent in self.agents.items():
            memory = self.knowledge[agent_id]
            position = agent.position
            memory[position] = observation_of(self.nodes[position], turn)
            for neighbor in self.nodes[position].neighbors:
                if neighbor in memory:
                    memory[neighbor] = observation_of(self.nodes[neighbor], turn)
            if self.resources[agent_id] != agent.resource:
                self.agents[agent_id] = replace(agent, resource=self.resources[agent_id])
        return State(turn, self.nodes, self.agents, self.knowledge)

    def rewards(self, after: State) -> dict[Team, float]:
        delta = _blue_value(after) - _blue_value(self.before)
        blue, red = (sum(self.before.agents[agent_id].team == team for agent_id in self.invalid) for team in TEAMS)
        bonus = self.bonus
        return {
            "BLUE": delta + bonus["BLUE"] - bonus["RED"] - blue + red,
            "RED": -delta + bonus["RED"] - bonus["BLUE"] - red + blue,
        }

    def duplicate_targets(self) -> dict[Team, list[str]]:
        found: dict[Team, list[str]] = {}
        for team in TEAMS:
            labels = [
                f"{kind}:{target}"
                for kind, moves in self.moves.items()
                for agent_id, target in moves
                if self.before.agents[agent_id].team == team
            ]
            found[team] = sorted({label for label in labels if labels.count(label) > 1})
        return found

    def _of(self, kind: str) -> list[tuple[str, str]]:
        return self.moves.get(kind, [])

    def _by_target(self, kind: str) -> list[tuple[str, list[str]]]:
        """The kind's moves as (target, agents in order), sorted by target."""
        grouped: dict[str, list[str]] = {}
        for agent_id, target in self._of(kind):
            grouped.setdefault(target, []).append(agent_id)
        return sorted(grouped.items())
