"""What is asked in each phase and condition, read back out of the prompts' text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arena_pipeline.arena.manifests import FROZEN_CASES, MANIFESTS
from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.protocol import EMPTY_BROADCAST, displayed_dicts, encode_broadcast, oracle_broadcast
from arena_pipeline.arena.state import BLUE_AGENTS
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.cases import shuffled_source, solved_case
from arena_pipeline.evaluation.conditions import (
    PLAYS,
    action_key,
    broadcast_key,
    inbox_of,
    plan_actions,
    plan_broadcasts,
)
from arena_pipeline.serving.requests import Completion, Request
from arena_pipeline_tests.evaluation.players import pack

CASES = MANIFESTS["arena-dev"][:4]


def silent_broadcasts() -> dict[str, Completion]:
    return {request.key: Completion("nothing", "stop") for request in plan_broadcasts(CASES, pack())}


def spoken_broadcasts() -> dict[str, Completion]:
    """Every agent but blue-2 speaks the oracle broadcast of its first displayed action; blue-2's reply is cut off."""
    replies = {}
    for case in CASES:
        state = solved_case(case).state
        for agent in BLUE_AGENTS:
            text = encode_broadcast(oracle_broadcast(state, agent, displayed_actions(state, agent, 0)[0]))
            replies[broadcast_key(case, agent)] = Completion(text[:-1] if agent == "blue-2" else text, "stop")
    return replies


def body(request: Request) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(request.prompt.user)
    return parsed


def inbox(request: Request) -> dict[str, Any]:
    return {entry["sender"]: entry["broadcast"] for entry in body(request)["inbox"]}


def test_broadcast_phase() -> None:
    requests = plan_broadcasts(CASES, pack())
    assert len(requests) == 16
    assert len({request.key for request in requests}) == 16
    for number, request in enumerate(requests):
        case, j = CASES[number // 4], number % 4
        state = solved_case(case).state
        assert (request.case, request.agent_id, request.phase) == (case, BLUE_AGENTS[j], "BROADCAST")
        assert request.permutation == case.seed + j
        shown = displayed_dicts(displayed_actions(state, BLUE_AGENTS[j], case.seed + j))
        assert body(request)["legal_actions"] == shown
        assert request.prompt.system == pack().broadcast_system
        assert "inbox" not in body(request)


def test_frozen_manifest_asks_1680_times() -> None:
    broadcasts = plan_broadcasts(FROZEN_CASES, pack())
    replies = {request.key: Completion("", "length") for request in broadcasts}
    assert len(broadcasts) + len(plan_actions(FROZEN_CASES, pack(), replies)) == 1680


def test_action_phase_asks_each_agent_in_each_play() -> None:
    requests = {request.key: request for request in plan_actions(CASES, pack(), spoken_broadcasts())}
    assert len(requests) == 4 * 6 * 4
    rotations = {"generated": 0, "dropped": 0, "reference": 0, "shuffled": 0, "generated-p1": 1, "generated-p2": 2}
    assert {play.name: play.rotation for play in PLAYS} == rotations
    for case in CASES:
        for play in PLAYS:
            for j, agent in enumerate(BLUE_AGENTS):
                request = requests[action_key(case, play, agent)]
                assert request.permutation == case.seed + j + rotations[play.name]
                shown = displayed_dicts(displayed_actions(solved_case(case).state, agent, request.permutation))
                assert body(request)["legal_actions"] == shown
                assert request.prompt.system == pack().action_system
                assert list(inbox(request)) == [other for other in BLUE_AGENTS if other != agent]


def test_inboxes_hold_what_the_condition_says() -> None:
    spoken = spoken_broadcasts()
    requests = {request.key: request for request in plan_actions(CASES, pack(), spoken)}
    for index, case in enumerate(CASES):
        solved, other = solved_case(case), shuffled_source(CASES, index)
        said = {
            sender: EMPTY_BROADCAST if sender == "blue-2" else json.loads(spoken[broadcast_key(case, sender)].text)
            for sender in BLUE_AGENTS
        }
        wanted = {
            "generated": said,
            "dropped": dict.fromkeys(BLUE_AGENTS, EMPTY_BROADCAST),
            "reference": {
                sender: oracle_broadcast(solved.state, sender, solved.solution.canonical[sender])
                for sender in BLUE_AGENTS
            },
            "shuffled": {
                sender: oracle_broadcast(other.state, sender, other.solution.canonical[sender])
                for sender in BLUE_AGENTS
            },
        }
        for play in PLAYS:
            for agent in BLUE_AGENTS:
                found = inbox(requests[action_key(case, play, agent)])
                expected = {sender: wanted[play.condition][sender] for sender in BLUE_AGENTS if sender != agent}
                assert found == expected, (case, play, agent)


def test_plans_are_pure() -> None:
    assert plan_broadcasts(CASES, pack()) == plan_broadcasts(CASES, pack())
    assert plan_actions(CASES, pack(), silent_broadcasts()) == plan_actions(CASES, pack(), silent_broadcasts())


def test_a_missing_broadcast_is_an_error() -> None:
    replies = silent_broadcasts()
    key = broadcast_key(CASES[2], "blue-1")
    del replies[key]
    with pytest.raises(EvaluationError, match=key):
        plan_actions(CASES, pack(), replies)


def test_an_unknown_condition_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="'loud'"):
        inbox_of(CASES, 0, "loud", silent_broadcasts())
