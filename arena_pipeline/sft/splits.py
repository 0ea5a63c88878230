"""Which split a seed belongs to (dataset specification, "Split of a seed")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arena_pipeline.arena.generation import GENERATOR_VERSION
from arena_pipeline.arena.manifests import EVALUATION_SEEDS, MANIFESTS
from arena_pipeline.errors import DatasetError
from arena_pipeline.provenance.hashing import sha256_text

SPLITS: Final = ("train", "validation", "test")

_TRAIN_BELOW: Final = 90
_VALIDATION_BELOW: Final = 95


def seed_bucket(seed: int) -> int:
    """The seed's bucket, 0..99: the first 8 hex digits of the SHA-256 of ``arena-gen-v1:<seed>``, mod 100."""
    return int(sha256_text(f"{GENERATOR_VERSION}:{seed}")[:8], 16) % 100


def split_for_seed(seed: int) -> str:
    """The split of every row made from a seed; raises ``DatasetError`` for a seed of an evaluation manifest."""
    refuse_evaluation_seeds((seed,))
    bucket = seed_bucket(seed)
    if bucket < _TRAIN_BELOW:
        return "train"
    return "validation" if bucket < _VALIDATION_BELOW else "test"


def refuse_evaluation_seeds(*seeds: Iterable[int]) -> None:
    """Raise ``DatasetError`` if any of the seeds, given as ranges or other collections, is evaluated on.

    The development manifests count too: a figure measured on trained-on cases would mean nothing.
    """
    for group in seeds:
        # A range answers "in" at once, however long it is.
        touched = (
            {seed for seed in EVALUATION_SEEDS if seed in group}
            if isinstance(group, range)
            else EVALUATION_SEEDS & {*group}
        )
        if touched:
            first = min(touched)
            manifest = next(name for name, cases in MANIFESTS.items() if any(case.seed == first for case in cases))
            raise DatasetError(
                f"seed {first}: reserved by evaluation manifest {manifest}; no dataset row may come from it, "
                "choose other seeds"
            )
