"""The training mixture and the overfit set (dataset specification, "Training mixture and the overfit set")."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import sha256_json
from arena_pipeline.sft.rows import Row, action_kind

STRATA: Final = ("broadcast", "action_common", "action_rare")
RARE_KINDS: Final = frozenset(("WAIT", "SCAN", "TRANSFER"))
OVERFIT_PARTS: Final[Mapping[str, int]] = {"broadcast": 154, "action_rare": 24, "action_common": 78}
"""How many of the first rows of each stratum the overfit set takes, in the order in which it holds them."""


def stratum(row: Row) -> str:
    """The stratum of a row: broadcast, action_common, or action_rare where its label is WAIT, SCAN or TRANSFER."""
    if row.phase == "BROADCAST":
        return "broadcast"
    return "action_rare" if action_kind(row) in RARE_KINDS else "action_common"


@dataclass(frozen=True, slots=True)
class Mixture:
    """The rows of a training run in the order drawn, with what came of the weights.

    ``sha256`` is the hash of the canonical JSON of ``row_ids``; ``counts`` and ``realised`` (shares, adding up to 1)
    are by stratum.
    """

    row_ids: tuple[str, ...]
    sha256: str
    counts: Mapping[str, int]
    realised: Mapping[str, float]


def mixture(train_rows: Sequence[Row], weights: Mapping[str, float], draws: int, seed: int) -> Mixture:
    """Draw ``draws`` rows of train: each draw's stratum at random by weight, the rows of a stratum in cycles.

    A stratum's rows are shuffled, and shuffled again each time they run out, so that none is drawn k + 1 times before
    all were drawn k times. The same rows, weights, draws and seed give the same list on every machine. Raises
    ``DatasetError`` for weights that are not one per stratum, from 0 and adding up to 1, for a row that is not of
    train, and for a stratum with a weight and no rows.
    """
    # Written so that a NaN fails it.
    if not (set(weights) == set(STRATA) and min(weights.values()) >= 0 and abs(sum(weights.values()) - 1) <= 1e-9):
        raise DatasetError(
            f"mixture weights {dict(weights)}: allowed is one from 0 for each of {', '.join(STRATA)}, adding up to 1"
        )
    if draws < 1:
        raise DatasetError(f"mixture of {draws} draws: at least 1 is needed")
    by_stratum = _ids_by_stratum(train_rows)
    for name in STRATA:
        if weights[name] > 0 and not by_stratum[name]:
            raise DatasetError(f"mixture weight of {name} is {weights[name]}, but train has no such row")
    # Each stratum has its own generator: how often one is drawn does not change the order of another's rows.
    cycles = {name: _cycle(by_stratum[name], random.Random(f"{seed}:{name}")) for name in STRATA}
    chooser = random.Random(f"{seed}:strata")
    drawable = [name for name in STRATA if weights[name] > 0]
    thresholds = list(accumulate(weights[name] for name in drawable))
    chosen = chooser.choices(drawable, cum_weights=thresholds, k=draws)
    row_ids = tuple(next(cycles[name]) for name in chosen)
    counts = Counter(chosen)
    return Mixture(
        row_ids=row_ids,
        sha256=sha256_json(row_ids),
        counts={name: counts[name] for name in STRATA},
        realised={name: counts[name] / draws for name in STRATA},
    )


def _ids_by_stratum(train_rows: Sequence[Row]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {name: [] for name in STRATA}
    for row in train_rows:
        if row.split != "train":
            raise DatasetError(f"row {row.id}: is of split {row.split}; validation and test are never drawn from")
        ids[stratum(row)].append(row.id)
    return ids


def _cycle(ids: Sequence[str], rng: random.Random) -> Iterator[str]:
    order = list(ids)
    while order:
        rng.shuffle(order)
        yield from order


def overfit_rows(train_rows: Sequence[Row]) -> list[Row]:
    """The overfit set's 256 rows: the first of each stratum of train, in the order of ``OVERFIT_PARTS``.

    ``train_rows`` must be in generation order, as ``Dataset.rows`` gives them. Raises ``DatasetError`` if train has too
    few rows of a stratum.
    """
    by_stratum: dict[str, list[Row]] = {name: [] for name in STRATA}
    for row in train_rows:
        by_stratum[stratum(row)].append(row)
    for name, count in OVERFIT_PARTS.items():
        if len(by_stratum[name]) < count:
            raise DatasetError(f"overfit set: train has {len(by_stratum[name])} rows of {name}, {count} are needed")
    return [row for name, count in OVERFIT_PARTS.items() for row in by_stratum[name][:count]]
