"""The scripted policies: the golden choices and baselines, priorities, claims and ties."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given, settings

from arena_pipeline.arena import (
    BLUE_AGENTS,
    RED_AGENTS,
    SCRIPTED_POLICIES,
    STYLES,
    WAIT,
    Action,
    State,
    generate_state,
    legal_actions,
    local_priority,
    random_legal_policy,
    scripted_policy,
    step,
)
from arena_pipeline.arena.state import Observation
from arena_pipeline.errors import ArenaError
from arena_pipeline_tests.arena.random_states import SEEDS, build
from arena_pipeline_tests.arena.vectors import bodies, golden


def test_golden_choices_and_rewards_of_the_frozen_cases() -> None:
    cases = golden("frozen_cases")["cases"]
    assert len(cases) == 60
    for case in cases:
        state = generate_state(case["seed"], case["size"])
        red = scripted_policy("sequential_heuristic", state, "RED", case["opponent_style"])
        assert bodies(red) == case["red_actions"]
        for agent_id, count in case["legal_counts"].items():
            assert len(legal_actions(state, agent_id)) == count
        for name in SCRIPTED_POLICIES:
            blue = scripted_policy(name, state, "BLUE")  # BLUE's style is balanced in every case
            if name != "wait":
                assert bodies(blue) == case["policy_actions"][name]
            assert step(state, blue | red).rewards["BLUE"] == case["rewards"][name]
        rewards = [
            step(state, random_legal_policy(state, case["seed"], repeat) | red).rewards["BLUE"] for repeat in range(32)
        ]
        assert rewards[:4] == case["random_legal_rewards_32_first4"]
        assert fmean(rewards) == pytest.approx(case["random_legal_mean_reward_32"], abs=1e-12)


def test_golden_local_intents() -> None:
    for seed, facts in golden("dataset_facts")["seeds_0_63"].items():
        state = generate_state(int(seed))
        assert bodies(scripted_policy("independent_local", state, "BLUE")) == facts["local_intents"]


def _state_where_blue_0_sees(status: str, *, own: bool = True, critical: bool = True) -> State:
    state = generate_state(0)
    home = state.agents["blue-0"].position
    seen = Observation(home, "BLUE" if own else "RED", status, 2, critical, 0)
    return replace(state, knowledge={**state.knowledge, "blue-0": {home: seen}})


@pytest.mark.parametrize(
    ("kind", "status", "balanced", "aggressive", "defensive"),
    [
        ("RECOVER", "COMPROMISED", 17, 16, 23),
        ("FORTIFY", "SECURE", 12, 10, 17),
        ("CAPTURE", "EXPOSED", 13, 19, 11),
        ("CAPTURE", "SECURE", 1, 7, -1),
        ("PROBE", "EXPOSED", 1, 5, 0),
        ("PROBE", "FORTIFIED", 12, 16, 11),
    ],
)
def test_scores_of_node_actions(kind: str, status: str, balanced: int, aggressive: int, defensive: int) -> None:
    state = _state_where_blue_0_sees(status)
    home = state.agents["blue-0"].position
    for style, score in (("balanced", balanced), ("aggressive", aggressive), ("defensive", defensive)):
        assert local_priority(state, "blue-0", Action(kind, home), style) == (score, kind, home)
    plain = _state_where_blue_0_sees(status, critical=False)
    depends = not (kind == "CAPTURE" and status != "EXPOSED") and not (kind == "PROBE" and status == "EXPOSED")
    difference = {"RECOVER": 3, "FORTIFY": 3, "CAPTURE": 2, "PROBE": 2}[kind] * depends
    assert local_priority(plain, "blue-0", Action(kind, home)) == (balanced - difference, kind, home)


@pytest.mark.parametrize(("own", "other", "score"), [(1, 0, 11), (2, 0, 13), (1, 1, 3), (2, 4, 5)])
def test_scores_of_transfers(own: int, other: int, score: int) -> None:
    state = generate_state(0)
    agents = {**state.agents}
    agents["blue-0"] = replace(agents["blue-0"], resource=own)
    agents["blue-1"] = replace(agents["blue-1"], resource=other)
    action = Action("TRANSFER", "blue-1", 1)
    for style in STYLES:
        assert local_priority(replace(state, agents=agents), "blue-0", action, style) == (score, "TRANSFER", "blue-1")


def test_scores_of_scanning_and_waiting() -> None:
    state = generate_state(0)
    for style in STYLES:
        assert local_priority(state, "blue-0", Action("SCAN", "V55"), style) == (2, "SCAN", "V55")
        assert local_priority(state, "blue-0", WAIT, style) == (0, "WAIT", state.agents["blue-0"].position)


@settings(max_examples=100)
@given(SEEDS)
def test_every_choice_is_the_best_that_is_free(seed: int) -> None:
    state = build(random.Random(seed)).state
    for style in STYLES:
        for team, members in (("BLUE", BLUE_AGENTS), ("RED", RED_AGENTS)):
            independent = scripted_policy("independent_local", state, team, style)  # type: ignore[arg-type]
            sequential = scripted_policy("sequential_heuristic", state, team, style)  # type: ignore[arg-type]
            assert tuple(independent) == tuple(sequential) == members
            claimed: set[tuple[str, str | None]] = set()
            for agent_id in members:
                ranked = sorted(
                    legal_actions(state, agent_id), key=lambda action: local_priority(state, agent_id, action, style)
                )
                assert independent[agent_id] == ranked[-1]
                free = [action for action in ranked if (action.kind, action.target) not in claimed]
                assert sequential[agent_id] == free[-1]
                if free[-1] != WAIT:
                    claimed.add((free[-1].kind, free[-1].target))


def test_random_draws_depend_on_seed_and_repeat() -> None:
    state = generate_state(4)
    draws = [tuple(random_legal_policy(state, 4, repeat).values()) for repeat in range(8)]
    assert len(set(draws)) > 1
    assert draws == [tuple(random_legal_policy(state, 4, repeat).values()) for repeat in range(8)]
    assert tuple(random_legal_policy(state, 4, 10_000).values()) == tuple(random_legal_policy(state, 5, 0).values())


def test_unknown_names_are_refused() -> None:
    state = generate_state(0)
    with pytest.raises(ArenaError, match="policy 'clever': allowed are wait, independent_local, sequential_heuristic"):
        scripted_policy("clever", state, "BLUE")
    for name in SCRIPTED_POLICIES:
        with pytest.raises(ArenaError, match="style 'calm': allowed are balanced, aggressive, defensive"):
            scripted_policy(name, state, "BLUE", "calm")
    with pytest.raises(ArenaError, match="style 'calm'"):
        local_priority(state, "blue-0", WAIT, "calm")
