"""Manifests by name, solved cases against the golden ones, and the grid of reward differences."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena_pipeline.arena.manifests import FROZEN_CASES, MANIFESTS, Case
from arena_pipeline.arena.policies import scripted_policy
from arena_pipeline.arena.state import state_digest
from arena_pipeline.errors import ConfigError, EvaluationError
from arena_pipeline.evaluation.cases import manifest_cases, reward_difference, shuffled_source, solved_case
from arena_pipeline_tests.evaluation.players import GOLDEN

FROZEN = json.loads((GOLDEN / "frozen_cases.json").read_text())["cases"]


def test_manifests_by_name() -> None:
    assert manifest_cases("arena-frozen-60") == FROZEN_CASES
    assert manifest_cases("arena-dev:2") == MANIFESTS["arena-dev"][:2]


@pytest.mark.parametrize(
    "name", ["arena", "arena-dev:", "arena-dev:0", "arena-dev:61", "arena-dev:1.0", "arena-dev:-1", ""]
)
def test_unknown_manifests_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"manifest '.*'"):
        manifest_cases(name)


def test_solved_cases_are_the_golden_ones() -> None:
    assert len(FROZEN) == 60
    for case, golden in zip(FROZEN_CASES, FROZEN, strict=True):
        solved = solved_case(case)
        assert state_digest(solved.state) == golden["state_sha256"]
        assert {agent: action.to_dict() for agent, action in solved.red_actions.items()} == golden["red_actions"]
        assert solved.solution.reward == golden["solver"]["reward"]
        canonical = {agent: action.to_dict() for agent, action in solved.solution.canonical.items()}
        assert canonical == golden["solver"]["canonical"]


def test_a_case_is_solved_once() -> None:
    assert solved_case(FROZEN_CASES[0]) is solved_case(Case(*FROZEN_CASES[0]))


def test_shuffled_messages_come_from_the_next_case_in_this_style() -> None:
    source = shuffled_source(FROZEN_CASES, 0)
    assert source.case == Case(FROZEN_CASES[1].seed, FROZEN_CASES[1].size, FROZEN_CASES[0].style)
    assert source.red_actions == scripted_policy("sequential_heuristic", source.state, "RED", "balanced")
    assert shuffled_source(FROZEN_CASES, 59).case == Case(
        FROZEN_CASES[0].seed, FROZEN_CASES[0].size, FROZEN_CASES[59].style
    )


@given(left=st.integers(-400, 400), right=st.integers(-400, 400), noise=st.integers(-50, 50))
def test_differences_lie_on_the_grid(left: int, right: int, noise: int) -> None:
    assert reward_difference(left / 20 + noise * 1e-15, right / 20) == (left - right) / 20


def test_noise_is_no_effect() -> None:
    assert reward_difference(0.1 + 0.2, 0.3) == 0.0


@pytest.mark.parametrize("value", [0.01, 0.025, 1.049])
def test_differences_off_the_grid_are_refused(value: float) -> None:
    with pytest.raises(EvaluationError, match=r"multiple of 0\.05"):
        reward_difference(value, 0.0)
