"""Initial states from a seed (arena-core-v1, "Generation `arena-gen-v1`"): the order of draws is the specification."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from arena_pipeline.arena.state import TEAMS, Agent, Node, Observation, Owner, State, observation_of
from arena_pipeline.errors import ArenaError

GENERATOR_VERSION: Final = "arena-gen-v1"
DEFAULT_SIZE: Final = 12
MINIMUM_SIZE: Final = 10
MAXIMUM_SIZE: Final = 90
MECHANICS_SKILLS: Final = ("WAIT", "SCAN", "TRANSFER", "SILENCE")

_MAX_DEGREE: Final = 4
_EXPOSED_RATE: Final = 0.28
_COMPROMISED_RATE: Final = 0.12


def generate_state(seed: int, size: int = DEFAULT_SIZE) -> State:
    """The initial state of a seed on ``size`` nodes; raises ``ArenaError`` for a size outside 10..90."""
    if not MINIMUM_SIZE <= size <= MAXIMUM_SIZE:
        raise ArenaError(f"size {size}: a state has {MINIMUM_SIZE} to {MAXIMUM_SIZE} nodes")
    rng = random.Random(seed)
    ids = [f"V{number:02d}" for number in rng.sample(range(10, 100), size)]
    neighbors = _edges(rng, size)
    neutral: list[Owner] = ["NEUTRAL"] * (size - 8)
    owners: list[Owner] = [*TEAMS * 4, *neutral]
    rng.shuffle(owners)
    values = [rng.randint(1, 3) for _ in range(size)]
    critical = sorted(range(size), key=lambda index: (-values[index], index))[:2]

    nodes: dict[str, Node] = {}
    for index, node_id in enumerate(ids):
        owned = owners[index] != "NEUTRAL"
        # The conditions short-circuit: no number is drawn where a condition before it fails.
        fortification = rng.choice((0, 0, 1)) if owned else 0
        exposed = owned and fortification == 0 and rng.random() < _EXPOSED_RATE
        compromised = owned and not exposed and rng.random() < _COMPROMISED_RATE
        nodes[node_id] = Node(
            id=node_id,
            neighbors=tuple(sorted(ids[other] for other in neighbors[index])),
            owner=owners[index],
            value=values[index],
            critical=index in critical,
            fortification=fortification,
            exposed=exposed,
            compromised=compromised,
        )

    agents: dict[str, Agent] = {}
    for team in TEAMS:
        positions = sorted(node.id for node in nodes.values() if node.owner == team)
        rng.shuffle(positions)
        for number in range(4):
            agent_id = f"{team.lower()}-{number}"
            agents[agent_id] = Agent(agent_id, team, positions[number], rng.randint(1, 3))

    knowledge: dict[str, dict[str, Observation]] = {}
    for agent in agents.values():
        adjacent = list(nodes[agent.position].neighbors)
        rng.shuffle(adjacent)
        seen = [agent.position, *adjacent[: rng.randint(1, min(2, len(adjacent)))]]
        knowledge[agent.id] = {node_id: observation_of(nodes[node_id], 0) for node_id in seen}
    return State(0, nodes, agents, knowledge)


def _edges(rng: random.Random, size: int) -> list[set[int]]:
    """Neighbour indices: a ring plus a few shuffled chords, no node above degree four."""
    neighbors: list[set[int]] = [set() for _ in range(size)]
    for index in range(size):
        _connect(neighbors, index, (index + 1) % size)
    candidates = [(i, j) for i in range(size) for j in range(i + 1, size) if j not in neighbors[i]]
    rng.shuffle(candidates)
    wanted = max(2, size // 3)
    for left, right in candidates:
        if wanted == 0:
            break
        if len(neighbors[left]) < _MAX_DEGREE and len(neighbors[right]) < _MAX_DEGREE:
            _connect(neighbors, left, right)
            wanted -= 1
    return neighbors


def _connect(neighbors: list[set[int]], left: int, right: int) -> None:
    neighbors[left].add(right)
    neighbors[right].add(left)


def generate_mechanics_state(seed: int, skill: str) -> State:
    """A targeted state that makes one skill of blue-0 matter ("Targeted states"); skill is one of MECHANICS_SKILLS."""
    if skill not in MECHANICS_SKILLS:
        raise ArenaError(f"skill {skill!r}: allowed are {', '.join(MECHANICS_SKILLS)}")
    base = generate_state(seed, DEFAULT_SIZE)
    nodes, agents = dict(base.nodes), dict(base.agents)
    knowledge = {agent: dict(memory) for agent, memory in base.knowledge.items()}
    actor = agents["blue-0"]
    home = actor.position
    adjacent = nodes[home].neighbors

    agents["blue-0"] = replace(actor, resource=2 if skill == "TRANSFER" else 0)
    nodes[home] = replace(nodes[home], owner="BLUE", compromised=False, exposed=False, fortification=2)
    seen: tuple[str, ...] = (home, *adjacent)
    if skill == "SILENCE":
        for node_id in seen:
            nodes[node_id] = replace(
                nodes[node_id], owner="BLUE", critical=False, compromised=False, exposed=False, fortification=0
            )
    elif skill == "SCAN":
        seen = (home, *adjacent[1:])
    elif skill == "TRANSFER":
        receiver = adjacent[0]
        agents["blue-1"] = replace(agents["blue-1"], position=receiver, resource=0)
        nodes[receiver] = replace(nodes[receiver], owner="BLUE", compromised=True, exposed=False, fortification=0)
        knowledge["blue-1"] = {receiver: observation_of(nodes[receiver], 0)}
        seen = (home,)
    knowledge["blue-0"] = {node_id: observation_of(nodes[node_id], 0) for node_id in seen}
    return State(0, nodes, agents, knowledge)
