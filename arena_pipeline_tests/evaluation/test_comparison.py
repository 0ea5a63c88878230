"""Base against tuned model, paired by case, and everything that makes them incomparable."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.comparison import compare
from arena_pipeline.evaluation.runner import evaluate
from arena_pipeline.evaluation.statistics import mean, mean_interval, sign_flip_p, stdev, z_of_opening
from arena_pipeline_tests.evaluation.players import ADAPTER_SHA256, Listener, RamblingPlayer, pack

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return evaluate(tmp_path_factory.mktemp("base"), "arena-dev:12", pack(), RamblingPlayer(), batch_size=64).rows


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    directory = tmp_path_factory.mktemp("tuned")
    return evaluate(directory, "arena-dev:12", pack(), Listener(ADAPTER_SHA256), batch_size=64).rows


def test_figures_are_those_of_the_paired_differences(base: Rows, tuned: Rows) -> None:
    comparison = compare(base, tuned)
    assert (comparison["cases"], comparison["interval_z"], comparison["opening"]) == (12, 1.96, 1)
    for condition in ("generated", "dropped", "reference", "shuffled"):
        for key, figure in (("regret_difference", "regret"), ("reward_difference", "reward")):
            differences = [
                round(20 * (after["plays"][condition][figure] - before["plays"][condition][figure])) / 20
                for before, after in zip(base, tuned, strict=True)
            ]
            found = comparison[key][condition]
            assert found["mean"] == mean(differences)
            assert found["interval"] == list(mean_interval(differences))
            assert found["p"] == sign_flip_p(differences)
            assert found["smallest_detectable_effect"] == pytest.approx(2.80 * stdev(differences) / 12**0.5)
            assert found["share_positive"] == sum(difference > 0 for difference in differences) / 12
    assert comparison["regret_difference"]["generated"]["mean"] < 0
    assert comparison["effects"]["generated_minus_dropped"]["mean"] > 0
    assert comparison["effects"]["reference_minus_generated"]["mean"] == 0
    for increase in comparison["rotation_regret_increase"].values():
        assert increase["mean"] == 0


def test_effects_are_the_tuned_models(base: Rows, tuned: Rows) -> None:
    own = [row["effects"]["generated_minus_shuffled"] for row in tuned]
    assert compare(base, tuned)["effects"]["generated_minus_shuffled"]["mean"] == mean(own)


def test_later_openings_have_wider_intervals(base: Rows, tuned: Rows) -> None:
    first, third = compare(base, tuned), compare(base, tuned, opening=3)
    assert third["interval_z"] == z_of_opening(3) > 1.96
    narrow = first["regret_difference"]["generated"]["interval"]
    wide = third["regret_difference"]["generated"]["interval"]
    assert wide[0] < narrow[0]
    assert narrow[1] < wide[1]


def test_a_model_does_not_differ_from_itself(base: Rows) -> None:
    for differences in (compare(base, base)[key] for key in ("regret_difference", "reward_difference")):
        for figures in differences.values():
            assert (figures["mean"], figures["p"], figures["share_zero"]) == (0, 1.0, 1.0)


def model(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda row: row["model"].update({key: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda row: row.update(manifest="arena-dev"), "manifest"),
        (lambda row: row.update(manifest_sha256="0" * 64), "manifest_sha256"),
        (lambda row: row.update(evaluator_version="arena-eval-v1"), "evaluator_version"),
        (lambda row: row.update(arena_version="arena-core-v0"), "arena_version"),
        (lambda row: row.update(generator_version="arena-gen-v0"), "generator_version"),
        (lambda row: row.update(prompt_version="other"), "prompt_version"),
        (lambda row: row.update(prompt_sha256="0" * 64), "prompt_sha256"),
        (lambda row: row.update(style="balanced"), "cases"),
        (model("base_sha256", "0" * 64), "base_sha256"),
        (model("dtype", "bfloat16"), "dtype"),
        (model("kind", "vllm"), "kind"),
        (model("version", "2"), "version"),
        (model("decoding", {"greedy": True, "max_new_tokens": 225}), "decoding"),
        (model("thinking", True), "thinking"),
    ],
)
def test_incomparable_evaluations_are_refused(
    base: Rows, tuned: Rows, change: Callable[[dict[str, Any]], None], named: str
) -> None:
    changed = copy.deepcopy(tuned)
    for row in changed:
        change(row)
    with pytest.raises(EvaluationError, match=f"not comparable: .*{named}"):
        compare(base, changed)


def test_only_the_adapter_may_differ(base: Rows, tuned: Rows) -> None:
    ranked = copy.deepcopy(tuned)
    for row in ranked:
        row["model"]["adapter_rank"] = 32
    assert compare(base, ranked)["tuned_model"]["adapter_rank"] == 32


def test_other_cases_or_none_are_refused(base: Rows, tuned: Rows) -> None:
    with pytest.raises(EvaluationError, match=f"cases, for example {tuned[-1]['seed']}"):
        compare(base, tuned[:-1])
    with pytest.raises(EvaluationError, match="order"):
        compare(base, [tuned[1], tuned[0], *tuned[2:]])
    for pair in ((base, []), ([], tuned)):
        with pytest.raises(EvaluationError, match="has none"):
            compare(*pair)


def test_the_base_carries_no_adapter(base: Rows, tuned: Rows) -> None:
    with pytest.raises(EvaluationError, match=f"the base carries the adapter {ADAPTER_SHA256}"):
        compare(tuned, base)
    with pytest.raises(EvaluationError, match="the base carries the adapter"):
        compare(tuned, tuned)
