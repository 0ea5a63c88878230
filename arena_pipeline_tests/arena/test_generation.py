"""Initial states: the golden ones, and what holds for every seed and size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena_pipeline.arena import generate_mechanics_state, generate_state, state_digest, state_to_dict, team_value
from arena_pipeline.arena.generation import MECHANICS_SKILLS
from arena_pipeline.arena.state import ALL_AGENTS, observation_of
from arena_pipeline.errors import ArenaError
from arena_pipeline_tests.arena.vectors import golden, start_state

FULL = golden("states_full")["states"]


@pytest.mark.parametrize("record", FULL, ids=lambda record: f"{record['kind']}-{record['seed']}")
def test_whole_states(record: dict[str, Any]) -> None:
    state = start_state(record)
    assert state_to_dict(state) == record["state"]
    assert state_digest(state) == record["sha256"]
    assert list(state.nodes) == record["node_insertion_order"]
    assert list(state.agents) == record["agent_insertion_order"]
    orders = {agent_id: list(memory) for agent_id, memory in state.knowledge.items()}
    assert orders == record["knowledge_insertion_order"]
    assert {"BLUE": team_value(state, "BLUE"), "RED": team_value(state, "RED")} == record["team_value"]


def test_digests_of_generated_states() -> None:
    records = golden("states_full")["generated_digests"]
    assert len(records) == 408
    for seed, size, digest in records:
        assert state_digest(generate_state(seed, size)) == digest, (seed, size)


def test_digests_of_targeted_states() -> None:
    records = golden("states_full")["mechanics_digests"]
    assert len(records) == 48
    for seed, skill, digest in records:
        assert state_digest(generate_mechanics_state(seed, skill)) == digest, (seed, skill)


@given(st.integers(0, 10**12), st.integers(10, 90))
def test_what_every_generated_state_is_like(seed: int, size: int) -> None:
    state = generate_state(seed, size)
    assert len(state.nodes) == size
    assert list(state.agents) == list(ALL_AGENTS)
    owners = [node.owner for node in state.nodes.values()]
    assert (owners.count("BLUE"), owners.count("RED")) == (4, 4)
    assert sum(node.critical for node in state.nodes.values()) == 2
    for node in state.nodes.values():
        assert node.id not in node.neighbors
        assert 2 <= len(node.neighbors) <= 4
        assert list(node.neighbors) == sorted(set(node.neighbors))
        assert all(node.id in state.nodes[other].neighbors for other in node.neighbors)
        assert 1 <= node.value <= 3
        assert not (node.exposed and node.fortification)
        assert not (node.exposed and node.compromised)
        if node.owner == "NEUTRAL":
            assert (node.fortification, node.exposed, node.compromised) == (0, False, False)
    assert len({agent.position for agent in state.agents.values()}) == 8
    for agent in state.agents.values():
        position = state.nodes[agent.position]
        assert position.owner == agent.team
        assert 1 <= agent.resource <= 3
        memory = state.knowledge[agent.id]
        assert next(iter(memory)) == agent.position
        assert set(memory) <= {agent.position, *position.neighbors}
        assert 2 <= len(memory) <= 3
        assert all(seen == observation_of(state.nodes[node_id], 0) for node_id, seen in memory.items())


@given(st.integers(0, 10**12), st.sampled_from(MECHANICS_SKILLS))
def test_targeted_states_differ_from_generated_ones_only_around_the_actor(seed: int, skill: str) -> None:
    plain, targeted = generate_state(seed), generate_mechanics_state(seed, skill)
    home = plain.agents["blue-0"].position
    near = {home, *plain.nodes[home].neighbors}
    assert {node_id for node_id in plain.nodes if plain.nodes[node_id] != targeted.nodes[node_id]} <= near
    moved = {"blue-0", "blue-1"} if skill == "TRANSFER" else {"blue-0"}
    for agent_id in set(ALL_AGENTS) - moved:
        assert targeted.agents[agent_id] == plain.agents[agent_id]
        assert targeted.knowledge[agent_id] == plain.knowledge[agent_id]
    assert targeted.agents["blue-0"].resource == (2 if skill == "TRANSFER" else 0)


@pytest.mark.parametrize("size", [9, 91])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ArenaError, match=f"size {size}: a state has 10 to 90 nodes"):
        generate_state(0, size)


def test_an_unknown_skill_is_refused() -> None:
    with pytest.raises(ArenaError, match="skill 'PROBE': allowed are WAIT, SCAN, TRANSFER, SILENCE"):
        generate_mechanics_state(0, "PROBE")
