"""The statistics against the golden vectors, against slow definitions of themselves, and their properties."""

from __future__ import annotations

import json
import math
import random
import statistics as standard

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation import statistics
from arena_pipeline.evaluation.statistics import (
    mean,
    mean_interval,
    sign_flip_p,
    smallest_detectable_effect,
    stdev,
    wilson,
    z_of_opening,
)
from arena_pipeline_tests.evaluation.players import GOLDEN

VECTORS = json.loads((GOLDEN / "stats.json").read_text())
EXACT = {"rel": 0, "abs": 1e-12}

values_lists = st.lists(st.integers(-200, 200).map(lambda twentieths: twentieths / 20), min_size=1, max_size=30)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: f"mean {vector['mean']:.3f}")
def test_golden_vectors(vector: dict) -> None:
    values = vector["values"]
    assert mean(values) == pytest.approx(vector["mean"], **EXACT)
    assert stdev(values) == pytest.approx(vector["stdev"], **EXACT)
    assert mean_interval(values) == pytest.approx(vector["mean_ci"], **EXACT)
    assert wilson(vector["positives"], len(values)) == pytest.approx(vector["wilson_of_positive"], **EXACT)
    assert sum(value > 0 for value in values) == vector["positives"]
    assert sign_flip_p(values, trials=2000) == vector["p_trials_2000"]
    assert sign_flip_p(values) == vector["p_trials_100000"]


def test_golden_edges() -> None:
    edge = VECTORS["edge"]
    assert list(mean_interval(edge["mean_ci_single"][0])) == edge["mean_ci_single"][1]
    assert sign_flip_p([0.0] * 60) == edge["p_all_zero_n60"]
    for values, p in (edge["p_sum_zero"], edge["p_one_value"]):
        assert sign_flip_p(values) == p
    constant, p = edge["p_constant_n60"]
    assert sign_flip_p([constant] * 60, trials=2000) == p
    assert len(edge["wilson"]) == 10
    for name, bounds in edge["wilson"].items():
        successes, n = map(int, name.split("/"))
        found = wilson(successes, n)
        assert found == pytest.approx(bounds, **EXACT)
        assert 0 <= found[0] <= found[1] <= 1


def test_wilson_bounds_are_clipped() -> None:
    assert wilson(0, 60)[0] == 0.0
    assert wilson(3, 3)[1] <= 1.0


def test_sign_bits_are_those_of_python() -> None:
    bits = statistics._one_bit_draws(statistics._python_generator(0), 100_000)
    assert bits[:120].tolist() == VECTORS["first_120_sign_bits"]
    rng = random.Random(0)
    assert bits.tolist() == [rng.getrandbits(1) for _ in range(100_000)]


@settings(max_examples=20)
@given(values=values_lists, trials=st.integers(1, 300))
def test_sign_flip_is_its_plain_definition(values: list[float], trials: int) -> None:
    rng = random.Random(0)
    observed = abs(standard.mean(values))
    hits = 0
    for _ in range(trials):
        flipped = [value if rng.getrandbits(1) else -value for value in values]
        hits += abs(standard.mean(flipped)) >= observed - 1e-12
    assert sign_flip_p(values, trials) == (hits + 1) / (trials + 1)


def test_sign_flip_does_not_depend_on_how_trials_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    values = VECTORS["vectors"][1]["values"]
    monkeypatch.setattr(statistics, "_BITS_AT_ONCE", 61)
    assert sign_flip_p(values, trials=2000) == VECTORS["vectors"][1]["p_trials_2000"]


@given(values=values_lists)
def test_sign_flip_has_two_sides_and_bounds(values: list[float]) -> None:
    p = sign_flip_p(values, trials=200)
    assert p == sign_flip_p([-value for value in values], trials=200)
    assert 1 / 201 <= p <= 1


@given(n=st.integers(1, 500), data=st.data())
def test_wilson_properties(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n + 1e-12
    assert successes / n - 1e-12 <= high <= 1
    assert wilson(n - successes, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    wider = wilson(successes, n, z=2.5)
    assert wider[0] <= low + 1e-12
    assert high <= wider[1] + 1e-12


@given(values=values_lists)
def test_mean_interval_is_around_the_mean(values: list[float]) -> None:
    low, high = mean_interval(values)
    assert low <= mean(values) <= high
    assert (high - low) / 2 == pytest.approx(1.96 * stdev(values) / math.sqrt(len(values)), abs=1e-12)
    assert smallest_detectable_effect(values) == pytest.approx(2.80 / 1.96 * (high - low) / 2, abs=1e-12)


def test_nothing_is_rounded() -> None:
    assert mean([0.01, 0.02]) == 0.015
    assert mean([0.1] * 10) == 0.1


@given(opening=st.integers(2, 50))
def test_each_opening_widens_intervals(opening: int) -> None:
    assert z_of_opening(1) == 1.96
    assert z_of_opening(opening) > z_of_opening(opening - 1)
    level = 2 * standard.NormalDist().cdf(z_of_opening(opening)) - 1
    assert level == pytest.approx(1 - 0.05 / opening, abs=1e-9)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_statistics_of_what_is_not_a_number(values: list[float]) -> None:
    for function in (mean, stdev, mean_interval, sign_flip_p):
        with pytest.raises(EvaluationError):
            function(values)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_no_interval_of_an_impossible_rate(successes: int, n: int) -> None:
    with pytest.raises(EvaluationError, match=f"{successes} of {n}"):
        wilson(successes, n)


def test_openings_count_from_one() -> None:
    with pytest.raises(EvaluationError, match="counted from 1"):
        z_of_opening(0)
