"""Objects, their dictionary forms and the digest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from arena_pipeline.arena import Action, action_from_dict, generate_state, state_digest, state_to_dict
from arena_pipeline.arena.state import Node, observation_of
from arena_pipeline.errors import ArenaError

NODE = Node("V10", ("V11",), "BLUE", 2, False, 0, False, False)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "SECURE"),
        ({"fortification": 1}, "FORTIFIED"),
        ({"exposed": True}, "EXPOSED"),
        ({"exposed": True, "fortification": 1}, "EXPOSED"),
        ({"compromised": True, "exposed": True, "fortification": 2}, "COMPROMISED"),
    ],
)
def test_status_is_the_first_that_applies(changes: dict[str, Any], status: str) -> None:
    node = replace(NODE, **changes)
    assert node.status == status
    assert observation_of(node, 3).to_dict() == {
        "node": "V10",
        "owner": "BLUE",
        "status": status,
        "value": 2,
        "critical": False,
        "observed_turn": 3,
    }


@pytest.mark.parametrize(
    "body",
    [{"type": "WAIT"}, {"type": "SCAN", "target": "V10"}, {"type": "TRANSFER", "target": "blue-1", "amount": 1}],
)
def test_an_action_is_what_its_dictionary_says(body: dict[str, Any]) -> None:
    assert action_from_dict(body).to_dict() == body


@pytest.mark.parametrize("body", [{}, {"target": "V10"}, {"type": "WAIT", "why": "tired"}])
def test_an_action_dictionary_of_another_form_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ArenaError, match="allowed keys are type, target and amount"):
        action_from_dict(body)


def test_actions_sort_by_kind_target_and_amount() -> None:
    ordered = [Action("CAPTURE", "V11"), Action("SCAN", "V10"), Action("TRANSFER", "blue-1", 1), Action("WAIT")]
    shuffled = [ordered[position] for position in (2, 0, 3, 1)]
    assert sorted(shuffled, key=lambda action: action.sort_key) == ordered


def test_every_field_is_in_the_digest() -> None:
    state = generate_state(3)
    digest = state_digest(state)
    home = state.agents["blue-0"].position
    changed = [
        replace(state, turn=1),
        replace(state, nodes={**state.nodes, home: replace(state.nodes[home], value=4)}),
        replace(state, agents={**state.agents, "red-3": replace(state.agents["red-3"], resource=4)}),
        replace(state, knowledge={**state.knowledge, "red-3": {}}),
    ]
    assert digest not in {state_digest(other) for other in changed}
    assert list(state_to_dict(state)) == ["turn", "nodes", "agents", "knowledge"]
