"""What an agent sees and may do: the golden observations, and that neither looks at hidden state."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.arena import (
    displayed_actions,
    legal_actions,
    observe,
    scripted_policy,
    state_digest,
    step,
)
from arena_pipeline.arena.state import ALL_AGENTS, Node
from arena_pipeline_tests.arena.random_states import SEEDS, build
from arena_pipeline_tests.arena.vectors import golden, start_state


def test_golden_observations() -> None:
    records = golden("observations")["states"]
    assert len(records) == 5
    for record in records:
        state = start_state(record)
        for _ in range(record["turns"]):  # "how" in the record: BLUE's heuristic balanced against RED's aggressive
            blue = scripted_policy("sequential_heuristic", state, "BLUE", "balanced")
            red = scripted_policy("sequential_heuristic", state, "RED", "aggressive")
            state = step(state, blue | red).state
        assert state_digest(state) == record["sha256"]
        assert set(record["agents"]) == set(ALL_AGENTS)
        for agent_id, expected in record["agents"].items():
            assert observe(state, agent_id) == expected["observation"]
            legal = legal_actions(state, agent_id)
            assert [action.to_dict() for action in legal] == expected["legal_actions"]
            for permutation, positions in expected["displayed"].items():
                shown = displayed_actions(state, agent_id, int(permutation))
                assert list(shown) == [legal[position] for position in positions]


def _scrambled(node: Node, rng: random.Random) -> Node:
    return replace(
        node,
        owner=rng.choice(("BLUE", "RED", "NEUTRAL")),
        value=rng.randint(1, 3),
        critical=rng.random() < 0.5,
        fortification=rng.randint(0, 2),
        exposed=rng.random() < 0.5,
        compromised=rng.random() < 0.5,
    )


@settings(max_examples=50)
@given(SEEDS)
def test_hidden_state_changes_nothing_an_agent_sees(seed: int) -> None:
    rng = random.Random(seed)
    state = build(rng).state
    hidden = replace(state, nodes={node_id: _scrambled(node, rng) for node_id, node in state.nodes.items()})
    for agent_id in ALL_AGENTS:
        assert observe(hidden, agent_id) == observe(state, agent_id)
        assert legal_actions(hidden, agent_id) == legal_actions(state, agent_id)


@settings(max_examples=50)
@given(SEEDS)
def test_legal_actions_are_sorted_distinct_and_affordable(seed: int) -> None:
    state = build(random.Random(seed)).state
    for agent_id in ALL_AGENTS:
        legal = legal_actions(state, agent_id)
        keys = [action.sort_key for action in legal]
        assert keys == sorted(set(keys))
        assert legal[-1].kind == "WAIT"
        if state.agents[agent_id].resource == 0:
            assert {action.kind for action in legal} <= {"SCAN", "WAIT"}


@settings(max_examples=50)
@given(SEEDS, st.integers(0, 1000))
def test_display_order_is_a_rotation(seed: int, permutation: int) -> None:
    state = build(random.Random(seed)).state
    legal = legal_actions(state, "blue-2")
    shown = displayed_actions(state, "blue-2", permutation)
    assert [shown[position] for position in range(len(legal))] == [
        legal[(position + permutation) % len(legal)] for position in range(len(legal))
    ]
