"""States for property tests: generated and targeted ones, some turns on, crowded and deceptive."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from hypothesis import strategies as st

from arena_pipeline.arena import (
    STYLES,
    Action,
    State,
    generate_mechanics_state,
    generate_state,
    legal_actions,
    step,
)
from arena_pipeline.arena.generation import MECHANICS_SKILLS
from arena_pipeline.arena.state import ALL_AGENTS, TEAM_AGENTS, Owner, Team, observation_of

ILLEGAL = Action("PROBE", "V00")
MOST_JOINT_ACTIONS = 6_000


SEEDS = st.integers(0, 2**32 - 1)
"""Tests draw the integer that makes a position, so that a failing one is short to name."""


class Position(NamedTuple):
    """A question for the solver."""

    state: State
    team: Team
    opponent_actions: dict[str, Action] | None
    style: str

    def joint_actions(self) -> int:
        return prod(len(legal_actions(self.state, agent_id)) for agent_id in TEAM_AGENTS[self.team])


def random_joint_action(state: State, rng: random.Random) -> dict[str, Action]:
    return {agent_id: rng.choice(legal_actions(state, agent_id)) for agent_id in ALL_AGENTS}


def later(state: State, turns: int, rng: random.Random) -> State:
    for _ in range(turns):
        state = step(state, random_joint_action(state, rng)).state
    return state


def with_resources(state: State, rng: random.Random) -> State:
    """The state with new resources, empty and full ones more often than not."""
    agents = {
        agent_id: replace(agent, resource=rng.choice((0, 0, 1, 1, 2, 3, 3, 4)))
        for agent_id, agent in state.agents.items()
    }
    return replace(state, agents=agents)


def crowded(state: State, rng: random.Random) -> State:
    """The state with each team's agents moved beside or onto one node, knowing more of what there is."""
    agents = dict(state.agents)
    knowledge = {agent_id: dict(memory) for agent_id, memory in state.knowledge.items()}
    for members in TEAM_AGENTS.values():
        center = state.nodes[rng.choice(list(state.nodes))]
        for agent_id in members:
            position = rng.choice((center.id, *center.neighbors))
            agents[agent_id] = replace(agents[agent_id], position=position)
            near = (position, *state.nodes[position].neighbors)
            for node in state.nodes.values():
                if node.id == position or rng.random() < (0.6 if node.id in near else 0.3):
                    knowledge[agent_id][node.id] = observation_of(node, state.turn)
    return replace(state, agents=agents, knowledge=knowledge)


def deceptive(state: State, rng: random.Random) -> State:
    """The state with some nodes changed behind the agents' backs, so that what they remember is false."""
    nodes = dict(state.nodes)
    for node in state.nodes.values():
        if rng.random() < 0.4:
            owner: Owner = rng.choice(("BLUE", "RED", "NEUTRAL"))
            fortification = rng.choice((0, 0, 1, 2))
            nodes[node.id] = replace(
                node,
                owner=owner,
                fortification=fortification,
                exposed=fortification == 0 and rng.random() < 0.5,
                compromised=owner != "NEUTRAL" and rng.random() < 0.3,
            )
    return replace(state, nodes=nodes)


def build(rng: random.Random) -> Position:
    """A random position with at most ``MOST_JOINT_ACTIONS`` joint actions."""
    while True:
        if rng.random() < 0.25:
            state = generate_mechanics_state(rng.randrange(10**11, 10**12), rng.choice(MECHANICS_SKILLS))
        else:
            state = generate_state(rng.randrange(10**11, 10**12), rng.randint(10, 16))
        state = later(state, rng.choice((0, 0, 1, 2, 5)), rng)
        if rng.random() < 0.5:
            state = with_resources(state, rng)
        if rng.random() < 0.4:
            state = deceptive(state, rng)
        if rng.random() < 0.5:
            state = crowded(state, rng)
        team: Team = rng.choice(("BLUE", "BLUE", "RED"))
        replies = rng.choice((None, random_joint_action(state, rng)))
        if replies is not None:
            replies = {agent_id: action for agent_id, action in replies.items() if agent_id not in TEAM_AGENTS[team]}
            if rng.random() < 0.3:
                replies[rng.choice(list(replies))] = ILLEGAL
                del replies[rng.choice(list(replies))]
        position = Position(state, team, replies, rng.choice(STYLES))
        if position.joint_actions() <= MOST_JOINT_ACTIONS:
            return position


def any_joint_actions(state: State, rng: random.Random) -> dict[str, Any]:
    """Legal actions mostly, with agents left out and illegal actions among them."""
    joint = random_joint_action(state, rng)
    for agent_id in ALL_AGENTS:
        chance = rng.random()
        if chance < 0.1:
            del joint[agent_id]
        elif chance < 0.2:
            joint[agent_id] = rng.choice(
                (ILLEGAL, Action("WAIT", "V10"), Action("HACK"), Action("TRANSFER", agent_id, 1))
            )
    return joint
