"""What the overfit smoke trains on and is scored on (evaluation specification, "Order", step 2)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.mixture import overfit_rows
from arena_pipeline.sft.rows import Row


def smoke_rows(train_rows: Sequence[Row], count: int) -> list[Row]:
    """The overfit set, or ``count`` of its rows, evenly spaced so that every stratum is among them.

    Raises ``DatasetError`` unless ``count`` divides the overfit set's size.
    """
    rows = overfit_rows(train_rows)
    if count < 1 or len(rows) % count:
        raise DatasetError(f"{count} smoke rows: allowed is a divisor of the overfit set's {len(rows)}")
    return rows[:: len(rows) // count]


def smoke_draws(rows: Sequence[Row], draws: int, seed: int) -> list[str]:
    """Row ids in the order of training: all rows in turn, shuffled anew each time they run out."""
    rng, ids = random.Random(f"{seed}:smoke"), [row.id for row in rows]
    drawn: list[str] = []
    while len(drawn) < draws:
        rng.shuffle(ids)
        drawn += ids
    return drawn[:draws]
