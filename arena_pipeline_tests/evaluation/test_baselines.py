"""The baselines' table on the frozen cases, to 1e-9, and case by case."""

from __future__ import annotations

import json

import pytest

from arena_pipeline.arena.manifests import frozen_manifest_sha256
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.baselines import baselines
from arena_pipeline_tests.evaluation.players import GOLDEN

FROZEN = json.loads((GOLDEN / "frozen_cases.json").read_text())
SPECIFIED = {
    "exact_solver": (2.645, 0),
    "sequential_heuristic": (-0.420833, 3.065833),
    "independent_local": (-0.509167, 3.154167),
    "random_legal": (-1.308281, 3.953281),
    "wait": (-2.311667, 4.956667),
}


def test_the_table() -> None:
    table = baselines("arena-frozen-60")
    assert table["manifest_sha256"] == frozen_manifest_sha256()
    assert (table["cases"], table["random_repeats"]) == (60, 32)
    assert [figures["policy"] for figures in table["policies"]] == list(SPECIFIED)
    for figures in table["policies"]:
        policy = figures["policy"]
        found = (figures["mean_reward"], figures["mean_oracle_regret"])
        assert found == pytest.approx(SPECIFIED[policy], abs=1e-6)
        golden_name = "centralized_oracle" if policy == "exact_solver" else policy
        golden = FROZEN["baselines_random32"][golden_name]
        assert found == pytest.approx((golden["mean_reward"], golden["mean_oracle_regret"]), abs=1e-9)
        assert figures["optimal_rate"] == golden["optimal_outcome_rate"]
        by_case = [
            case["random_legal_mean_reward_32"] if policy == "random_legal" else case["rewards"][golden_name]
            for case in FROZEN["cases"]
        ]
        assert figures["rewards"] == pytest.approx(by_case, abs=1e-9)


def test_progress_reaches_its_total() -> None:
    calls: list[tuple[str, int, int]] = []
    table = baselines("arena-frozen-60:3", random_repeats=2, progress=lambda *call: calls.append(call))
    assert (table["cases"], table["random_repeats"]) == (3, 2)
    assert calls == [("baselines", done, 3) for done in range(4)]


def test_no_baselines_of_nothing() -> None:
    with pytest.raises(EvaluationError, match="random_repeats 0"):
        baselines("arena-dev", random_repeats=0)
