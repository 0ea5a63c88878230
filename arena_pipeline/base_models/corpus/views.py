"""Whose eyes a document looks through: an agent in a state that no dataset and no manifest can contain.

Every seed is at least 10**12 (arena-core-v1, "Seed ranges"). Half of the states keep what generation draws; in the
other half every field that an agent can see is drawn independently, so that only reading the prompt tells a field.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from arena_pipeline.arena.generation import generate_state
from arena_pipeline.arena.state import (
    BLUE_AGENTS,
    MAX_RESOURCE,
    OWNERS,
    STATUSES,
    Node,
    Observation,
    State,
)

FIRST_SEED: Final = 10**12
_SEED_SPAN: Final = 2**40
_RANDOMISED_SHARE: Final = 0.5
_LAST_TURN: Final = 7


def random_view(rng: random.Random) -> tuple[State, str]:
    """A state and the BLUE agent that sees it."""
    state = generate_state(FIRST_SEED + rng.randrange(_SEED_SPAN), rng.randint(10, 16))
    agent_id = rng.choice(BLUE_AGENTS)
    if rng.random() < _RANDOMISED_SHARE:
        state = _randomised(rng, state, agent_id)
    return state, agent_id


def _randomised(rng: random.Random, state: State, agent_id: str) -> State:
    """The same network with the agent's surroundings, memory and resource drawn field by field."""
    turn = rng.choice((0, rng.randint(1, _LAST_TURN)))
    agents = dict(state.agents)
    agents[agent_id] = replace(agents[agent_id], resource=rng.randint(0, MAX_RESOURCE))
    home = agents[agent_id].position
    neighbors = state.nodes[home].neighbors
    for other in BLUE_AGENTS:
        if other != agent_id and rng.random() < 0.3:
            agents[other] = replace(
                agents[other], position=rng.choice(neighbors), resource=rng.randint(0, MAX_RESOURCE)
            )
    seen = [home, *rng.sample(neighbors, rng.randint(0, len(neighbors)))]
    if rng.random() < 0.3:
        distant = [node for node in state.nodes if node not in neighbors and node != home]
        seen += rng.sample(distant, rng.randint(1, 2))
    knowledge = dict(state.knowledge)
    knowledge[agent_id] = {node: _observation(rng, state.nodes[node], turn) for node in seen}
    return State(turn, state.nodes, agents, knowledge)


def _observation(rng: random.Random, node: Node, turn: int) -> Observation:
    return Observation(
        node=node.id,
        owner=rng.choice(OWNERS),
        status=rng.choice(STATUSES),
        value=rng.randint(1, 3),
        critical=rng.random() < 0.5,
        observed_turn=rng.randint(0, turn),
    )
