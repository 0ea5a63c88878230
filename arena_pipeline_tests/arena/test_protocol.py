"""Texts the agents exchange: the oracle's broadcasts against the golden ones, encoding, and their small rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.arena.generation import MECHANICS_SKILLS, generate_mechanics_state, generate_state
from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.protocol import (
    EMPTY_BROADCAST,
    displayed_dicts,
    encode_action,
    encode_broadcast,
    oracle_broadcast,
    teammates,
)
from arena_pipeline.arena.state import BLUE_AGENTS, WAIT, Action, Observation, action_from_dict
from arena_pipeline.errors import ArenaError

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((GOLDEN / "dataset_facts.json").read_text(encoding="utf-8"))
    return loaded


def test_oracle_broadcasts_of_seeds_0_to_31_are_the_golden_ones(facts: dict[str, Any]) -> None:
    golden = facts["oracle_broadcast_seeds_0_31"]
    assert len(golden) == 32
    for seed, by_agent in golden.items():
        state = generate_state(int(seed))
        chosen = scripted_policy("independent_local", state, "BLUE")
        assert {agent: oracle_broadcast(state, agent, chosen[agent]) for agent in BLUE_AGENTS} == by_agent


def test_oracle_broadcasts_of_the_golden_intents_are_the_golden_ones(facts: dict[str, Any]) -> None:
    """The same values from the intents as recorded, so that a fault of the policy cannot hide one of the broadcast."""
    compared = 0
    for seed, by_agent in facts["oracle_broadcast_seeds_0_31"].items():
        for agent, intent in facts["seeds_0_63"][seed]["local_intents"].items():
            assert oracle_broadcast(generate_state(int(seed)), agent, action_from_dict(intent)) == by_agent[agent]
            compared += 1
    assert compared == 128


def test_oracle_broadcast_asks_for_a_resource_only_when_it_waits_with_none() -> None:
    state = generate_mechanics_state(5_000_000, "WAIT")
    assert state.agents["blue-0"].resource == 0
    assert oracle_broadcast(state, "blue-0", WAIT)["request_resource"] == 1
    assert oracle_broadcast(state, "blue-0", Action("SCAN", "V10"))["request_resource"] == 0
    assert oracle_broadcast(generate_state(0), "blue-0", WAIT)["request_resource"] == 0


def test_oracle_broadcast_declares_no_intent_for_wait() -> None:
    assert oracle_broadcast(generate_state(0), "blue-0", WAIT)["intent"] is None


def test_oracle_broadcast_orders_facts_and_keeps_the_noteworthy_three() -> None:
    def seen(node: str, owner: Any, status: str, critical: bool, turn: int) -> Observation:
        return Observation(node, owner, status, 1, critical, turn)

    memory = [
        seen("V10", "BLUE", "SECURE", False, 9),  # kept only as the target
        seen("V11", "RED", "SECURE", False, 5),
        seen("V12", "BLUE", "FORTIFIED", False, 5),
        seen("V13", "BLUE", "SECURE", True, 1),
        seen("V14", "BLUE", "EXPOSED", False, 2),
    ]
    base = generate_state(0)
    state = replace(base, knowledge={**base.knowledge, "blue-0": {fact.node: fact for fact in memory}})

    def nodes(intent: Action) -> list[str]:
        return [fact["node"] for fact in oracle_broadcast(state, "blue-0", intent)["facts"]]

    assert nodes(WAIT) == ["V14", "V13", "V12"]  # noteworthy ones first, then the later turn, then the larger id
    assert nodes(Action("FORTIFY", "V10")) == ["V10", "V14", "V13"]
    assert nodes(Action("CAPTURE", "V11")) == ["V11", "V14", "V13"]


def test_nothing_is_noteworthy_in_a_silence_state() -> None:
    state = generate_mechanics_state(6_000_000, "SILENCE")
    broadcast = oracle_broadcast(state, "blue-0", WAIT)
    assert (broadcast["facts"], broadcast["intent"]) == ([], None)


def test_broadcast_text_is_sorted_compact_json() -> None:
    assert encode_broadcast(EMPTY_BROADCAST) == '{"facts":[],"intent":null,"request_resource":0}'
    state = generate_state(0)
    broadcast = oracle_broadcast(state, "blue-0", Action("PROBE", "V48"))
    assert encode_broadcast(broadcast) == (
        '{"facts":[{"critical":false,"node":"V48","observed_turn":0,"owner":"NEUTRAL","status":"SECURE","value":2}],'
        '"intent":{"target":"V48","type":"PROBE"},"request_resource":0}'
    )


@pytest.mark.parametrize("skill", MECHANICS_SKILLS)
def test_action_text_names_the_display_position(skill: str) -> None:
    for permutation in range(5):
        displayed = displayed_actions(generate_mechanics_state(5_000_003, skill), "blue-0", permutation)
        for position, (action, shown) in enumerate(zip(displayed, displayed_dicts(displayed), strict=True)):
            assert encode_action(action, displayed) == f'{{"action_id":"A{position}"}}'
            assert shown == {**action.to_dict(), "id": f"A{position}"}


def test_an_action_that_is_not_displayed_has_no_text() -> None:
    with pytest.raises(ArenaError, match=r"CAPTURE.*not among the 1 displayed"):
        encode_action(Action("CAPTURE", "V10"), [WAIT])


def test_teammates_are_the_three_others_sorted() -> None:
    assert teammates("blue-2") == ("blue-0", "blue-1", "blue-3")
    for stranger in ("red-0", "blue-4", ""):
        with pytest.raises(ArenaError, match="BLUE agents blue-0, blue-1"):
            teammates(stranger)
