"""What the overfit smoke is made of: rows of every stratum, drawn equally often, the same on every machine."""

from __future__ import annotations

from collections import Counter

import pytest

from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.mixture import STRATA, overfit_rows, stratum
from arena_pipeline.sft.smoke import smoke_draws, smoke_rows


def test_a_result_takes_the_whole_overfit_set(full: Dataset) -> None:
    assert smoke_rows(full.rows("train"), 256) == overfit_rows(full.rows("train"))


@pytest.mark.parametrize("count", [32, 64, 128])
def test_a_rehearsal_takes_some_of_it_from_every_stratum(full: Dataset, count: int) -> None:
    whole = overfit_rows(full.rows("train"))
    rows = smoke_rows(full.rows("train"), count)
    assert len(rows) == count
    assert {stratum(row) for row in rows} == set(STRATA)
    assert [row.id for row in whole if row in rows] == [row.id for row in rows], "in the set's order"


@pytest.mark.parametrize("count", [0, -1, 100, 512])
def test_other_numbers_are_refused(full: Dataset, count: int) -> None:
    with pytest.raises(DatasetError, match=f"{count} smoke rows: allowed is a divisor of the overfit set's 256"):
        smoke_rows(full.rows("train"), count)


def test_every_row_is_drawn_before_any_is_drawn_again(full: Dataset) -> None:
    rows = smoke_rows(full.rows("train"), 32)
    ids = {row.id for row in rows}
    drawn = smoke_draws(rows, 80, seed=3)
    assert len(drawn) == 80
    assert set(drawn[:32]) == set(drawn[32:64]) == ids
    assert drawn[:32] != drawn[32:64], "shuffled anew"
    assert set(Counter(drawn).values()) == {2, 3}
    assert smoke_draws(rows, 80, seed=3) == drawn
    assert smoke_draws(rows, 80, seed=4) != drawn
    assert smoke_draws(rows, 40, seed=3) == drawn[:40]
