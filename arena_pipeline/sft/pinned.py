"""Whether a loaded dataset is the pinned one: the one reading of a dataset's pin.

Source: dataset specification, "Rows, ids, hash".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arena_pipeline.errors import PinMismatch
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.provenance.pins import Pins, dataset_pin_name
from arena_pipeline.provenance.trees import NO_FILE
from arena_pipeline.sft.loading import Dataset
from arena_pipeline.sft.manifest import MANIFEST_FILE


def pinned_name(dataset: Dataset, num_seeds: int, start_seed: int) -> str:
    """The name that a dataset is pinned under; a copy without a manifest is of the seeds given."""
    manifest = dataset.manifest
    seeds = (num_seeds, start_seed) if manifest is None else (manifest.num_seeds, manifest.start_seed)
    return dataset_pin_name(dataset.prompts.version, *seeds)


def expect_pinned(pins: Pins, name: str, dataset: Dataset, directory: Path) -> bool:
    """Compare a dataset with its pin; True if it is pinned and equal, False if there is no pin of that name.

    Raises ``PinMismatch`` naming the first file that differs, or the directory if its rows do.
    """
    pin = pins.datasets.get(name)
    if pin is not None and pin.files is not None and pin.files.keys() == dataset.file_hashes.keys():
        # In another layout the same rows lie in other files; and a manifest notes how many processes built it, which
        # changes no row: what else it says is compared with the rows when it is loaded and audited.
        found = {**dataset.file_hashes, MANIFEST_FILE: pin.files.get(MANIFEST_FILE, NO_FILE)}
        pins.expect_files("datasets", name, found, directory)
    return pins.expect("datasets", name, dataset.content_sha256, directory, allow_new=True)


def expect_pinned_manifest(pins: Pins, name: str, dataset: Dataset, directory: Path) -> None:
    """Hold a manifest's bytes to the pinned ones, but for its note of how many processes built it.

    Raises ``PinMismatch`` naming the manifest. Nothing is compared where files are not pinned, or laid out otherwise.
    """
    pin = pins.datasets.get(name)
    manifest = dataset.manifest
    if pin is None or pin.files is None or manifest is None or pin.files.keys() != dataset.file_hashes.keys():
        return
    path = directory / MANIFEST_FILE
    if (expected := sha256_text(manifest.text())) != (found := dataset.file_hashes[MANIFEST_FILE]):
        raise PinMismatch(path, expected, found, "the builder writes the same values as other bytes; build it again")
    if (found := sha256_text(replace(manifest, generation_workers=1).text())) != pin.files[MANIFEST_FILE]:
        advice = f"as --workers 1 builds it, pinned as datasets.{name}"
        raise PinMismatch(path, pin.files[MANIFEST_FILE], found, advice)
