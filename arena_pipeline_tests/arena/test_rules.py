"""Turns: the golden transitions to the last bit, and what holds in every turn."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from arena_pipeline.arena import (
    WAIT,
    Action,
    State,
    generate_state,
    legal_actions,
    redundant_agents,
    state_digest,
    step,
    team_value,
)
from arena_pipeline.arena.rules import REWARD_TOLERANCE
from arena_pipeline.arena.state import ALL_AGENTS, TEAM_AGENTS, TEAMS
from arena_pipeline.errors import ArenaError
from arena_pipeline_tests.arena.random_states import SEEDS, any_joint_actions, build
from arena_pipeline_tests.arena.vectors import actions, golden, start_state

STEPS = golden("steps")


def _play(state: State, record: Mapping[str, Any]) -> State:
    """Play a recorded turn, compare everything recorded about it, and return the next state."""
    assert state_digest(state) == record["before_sha256"]
    joint = actions(record["actions"])
    result = step(state, joint)
    assert {team: repr(reward) for team, reward in result.rewards.items()} == {
        team: repr(reward) for team, reward in record["rewards"].items()
    }
    assert [list(event) for event in result.events] == record["events"]
    assert result.invalid_agents == record["invalid_agents"]
    assert result.duplicate_targets == record["duplicate_targets"]
    assert state_digest(result.state) == record["next_sha256"]
    assert redundant_agents(state, joint, "BLUE") == record["redundant_blue"]
    for moment, position in (("before", state), ("after", result.state)):
        for team, value in record.get(f"team_value_{moment}", {}).items():
            assert repr(team_value(position, team)) == repr(value)
    return result.state


def test_golden_chains() -> None:
    records = STEPS["transitions"]
    assert len(records) == 200
    state = start_state(records[0])
    kinds: Counter[str] = Counter()
    for record in records:
        if record["step_index"] == 0:
            state = start_state(record)
        state = _play(state, record)
        kinds.update(f"{kind}:{detail}:{success}" for kind, _, _, success, detail in record["events"])
    assert kinds == STEPS["event_counts"]


@pytest.mark.parametrize("record", STEPS["extra"], ids=lambda record: f"{record['label']}-{record['seed']}")
def test_golden_rare_cases(record: dict[str, Any]) -> None:
    _play(start_state(record), record)


def test_an_agent_left_out_waits() -> None:
    state = generate_state(0)
    assert step(state, {}) == step(state, dict.fromkeys(ALL_AGENTS, WAIT))
    assert step(state, {}).invalid_agents == []


def test_an_unknown_agent_is_refused() -> None:
    with pytest.raises(ArenaError, match="agent 'green-0' is not in the state; its agents are blue-0, .*red-3"):
        step(generate_state(0), {"green-0": WAIT})


@pytest.mark.parametrize("amount", [True, 1.0, "1", 0, 2, None])
def test_only_the_integer_one_is_the_amount_of_a_transfer(amount: Any) -> None:
    state = generate_state(2)
    sender, legal = next(
        (agent_id, action)
        for agent_id in ALL_AGENTS
        for action in legal_actions(state, agent_id)
        if action.kind == "TRANSFER"
    )
    assert step(state, {sender: legal}).invalid_agents == []
    assert step(state, {sender: replace(legal, amount=amount)}).invalid_agents == [sender]


def test_an_illegal_action_costs_its_own_team_one_and_gains_the_other_one() -> None:
    state = generate_state(0)
    waiting = step(state, {}).rewards
    illegal = step(state, {"blue-1": Action("HACK", "V48"), "blue-3": Action("WAIT", "V48"), "red-0": Action("SCAN")})
    assert illegal.invalid_agents == ["blue-1", "blue-3", "red-0"]
    assert [list(event) for event in illegal.events] == [
        ["INVALID", "blue-1", "V48", False, "HACK"],
        ["INVALID", "blue-3", "V48", False, "WAIT"],
        ["INVALID", "red-0", None, False, "SCAN"],
    ]
    assert illegal.rewards == {"BLUE": waiting["BLUE"] - 2 + 1, "RED": waiting["RED"] - 1 + 2}


@settings(max_examples=100)
@given(SEEDS)
def test_what_every_turn_is_like(seed: int) -> None:
    rng = random.Random(seed)
    state = build(rng).state
    joint = any_joint_actions(state, rng)
    untouched = copy.deepcopy(state)
    result = step(state, joint)
    assert state == untouched
    after = result.state
    assert after.turn == state.turn + 1
    assert result.rewards["BLUE"] == pytest.approx(-result.rewards["RED"], abs=REWARD_TOLERANCE)
    assert team_value(after, "BLUE") == -team_value(after, "RED")
    invalid = [agent_id for agent_id, action in joint.items() if action not in legal_actions(state, agent_id)]
    assert result.invalid_agents == sorted(invalid)
    legal_only = step(state, {agent_id: action for agent_id, action in joint.items() if agent_id not in invalid})
    assert legal_only.state == after
    for team in TEAMS:
        own = [agent_id for agent_id in invalid if agent_id in TEAM_AGENTS[team]]
        penalty = len(own) - (len(invalid) - len(own))
        assert result.rewards[team] == pytest.approx(legal_only.rewards[team] - penalty, abs=REWARD_TOLERANCE)
        assert result.rewards[team] * 20 == pytest.approx(round(result.rewards[team] * 20), abs=1e-9)
    for node in after.nodes.values():
        assert 0 <= node.fortification <= 2
        assert (node.id, node.neighbors, node.value, node.critical) == (
            (before := state.nodes[node.id]).id,
            before.neighbors,
            before.value,
            before.critical,
        )
    for agent_id, agent in after.agents.items():
        assert 0 <= agent.resource <= 4
        assert after.knowledge[agent_id][agent.position].observed_turn == after.turn
        assert set(state.knowledge[agent_id]) <= set(after.knowledge[agent_id])
        if agent.position != state.agents[agent_id].position:
            assert ("CAPTURE", agent_id, agent.position, True, "") in result.events


@settings(max_examples=30)
@given(SEEDS)
def test_an_agent_is_redundant_iff_waiting_instead_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    state = build(rng).state
    joint = any_joint_actions(state, rng)
    for team in TEAMS:
        reward = step(state, joint).rewards[team]
        expected = []
        for agent_id in TEAM_AGENTS[team]:
            without = {other: action for other, action in joint.items() if other != agent_id}
            if joint.get(agent_id, WAIT).kind != "WAIT" and step(state, without).rewards[team] >= reward - 1e-12:
                expected.append(agent_id)
        assert redundant_agents(state, joint, team) == expected
