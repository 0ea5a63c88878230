"""The training mixture: its shares, its cycles, its being a function of its arguments; and the overfit set's limits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.mixture import STRATA, mixture, overfit_rows, stratum

WEIGHTS = {"broadcast": 0.60, "action_common": 0.31, "action_rare": 0.09}


def test_the_recipe(full: Dataset) -> None:
    rows = full.rows("train")
    found = mixture(rows, WEIGHTS, draws=len(rows), seed=7)
    strata = {row.id: stratum(row) for row in rows}
    counted = Counter(strata[identifier] for identifier in found.row_ids)
    assert len(found.row_ids) == 4958
    assert counted == found.counts
    assert found.sha256 == sha256_json(list(found.row_ids))
    for name, weight in WEIGHTS.items():
        assert found.realised[name] == counted[name] / 4958
        # Four standard deviations of a share of this many draws.
        assert abs(found.realised[name] - weight) < 4 * (weight * (1 - weight) / 4958) ** 0.5


@settings(max_examples=20)
@given(seed=st.integers(0, 2**64), draws=st.integers(1, 3000))
def test_every_row_of_a_stratum_is_drawn_before_any_is_drawn_again(full: Dataset, seed: int, draws: int) -> None:
    rows = full.rows("validation")
    as_train = [_of_train(row) for row in rows]
    found = mixture(as_train, WEIGHTS, draws, seed)
    for name in STRATA:
        drawn = Counter({row.id: 0 for row in as_train if stratum(row) == name})
        drawn.update(identifier for identifier in found.row_ids if identifier in drawn)
        assert max(drawn.values()) - min(drawn.values()) <= 1


def _of_train(row):
    return type(row)(row.messages, {**row.metadata, "split": "train"}, row.id)


def test_the_same_arguments_give_the_same_rows_and_others_do_not(small: Dataset) -> None:
    rows = small.rows("train")
    first = mixture(rows, WEIGHTS, 500, 3)
    assert mixture(list(rows), dict(WEIGHTS), 500, 3) == first
    assert mixture(rows, WEIGHTS, 500, 4).sha256 != first.sha256
    assert mixture(rows[1:], WEIGHTS, 500, 3).sha256 != first.sha256
    assert mixture(rows, WEIGHTS, 200, 3).row_ids == first.row_ids[:200]


def test_cycles_are_shuffled_again(small: Dataset) -> None:
    rare = [row for row in small.rows("train") if stratum(row) == "action_rare"]
    found = mixture(rare, {"broadcast": 0, "action_common": 0, "action_rare": 1}, 2 * len(rare), 0)
    first, second = found.row_ids[: len(rare)], found.row_ids[len(rare) :]
    assert set(first) == set(second) == {row.id for row in rare}
    assert first != second


def test_a_stratum_without_weight_is_never_drawn(small: Dataset) -> None:
    found = mixture(small.rows("train"), {"broadcast": 0.5, "action_common": 0.5, "action_rare": 0.0}, 2000, 1)
    assert found.counts["action_rare"] == 0


@pytest.mark.parametrize(
    "weights",
    [
        {"broadcast": 1.0},
        {**WEIGHTS, "more": 0.0},
        {"broadcast": 0.6, "action_common": 0.3, "action_rare": 0.2},
        {"broadcast": 1.2, "action_common": -0.3, "action_rare": 0.1},
        {"broadcast": float("nan"), "action_common": 0.5, "action_rare": 0.5},
    ],
)
def test_other_weights_are_refused(small: Dataset, weights: dict[str, float]) -> None:
    with pytest.raises(DatasetError, match="mixture weights"):
        mixture(small.rows("train"), weights, 10, 0)


def test_other_rows_are_refused(small: Dataset) -> None:
    with pytest.raises(DatasetError, match="split test"):
        mixture(small.rows("test"), WEIGHTS, 10, 0)
    broadcasts = [row for row in small.rows("train") if row.phase == "BROADCAST"]
    with pytest.raises(DatasetError, match="action_common is 0.31, but train has no such row"):
        mixture(broadcasts, WEIGHTS, 10, 0)
    with pytest.raises(DatasetError, match="0 draws"):
        mixture(small.rows("train"), WEIGHTS, 0, 0)


def test_overfit_set_needs_enough_rows(small: Dataset, full: Dataset) -> None:
    with pytest.raises(DatasetError, match="rows of action_common, 78 are needed"):
        overfit_rows(small.rows("train"))
    assert len({row.id for row in overfit_rows(full.rows("train"))}) == 256
