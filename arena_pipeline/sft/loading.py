"""Loads a dataset directory, built here or brought, and verifies every id (dataset spec, "Rows, ids, hash").

The published layout has train in three files and its rows' metadata filled with defaults. Its train rows are sorted
back into generation order, because the overfit set and the mixture are defined by it; a published file in any order
therefore gives the same dataset. In the project's own layout the files' order is kept, and the audit checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arena_pipeline.arena.prompts import PromptPack, pack_from_rows
from arena_pipeline.errors import DatasetError, IntegrityError
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.sft.manifest import DatasetManifest
from arena_pipeline.sft.mixture import stratum
from arena_pipeline.sft.reading import (
    PUBLISHED,
    FileContent,
    Line,
    find_layout,
    parse_object,
    read_file,
    read_manifest_text,
)
from arena_pipeline.sft.rows import Row, content_sha256, generation_key, row_id
from arena_pipeline.sft.splits import SPLITS


@dataclass(frozen=True, slots=True)
class Dataset:
    """A loaded dataset: all ids verified, the content hash computed from them.

    ``file_hashes`` maps each file's name to the SHA-256 of its bytes; ``manifest`` is None where a published copy has
    none; ``prompts`` are the texts that the rows carry.
    """

    directory: Path
    layout: str
    content_sha256: str
    file_hashes: Mapping[str, str]
    manifest: DatasetManifest | None
    prompts: PromptPack
    splits: Mapping[str, tuple[Row, ...]]

    def rows(self, split: str) -> tuple[Row, ...]:
        """The rows of a split in generation order; raises ``DatasetError`` for another name."""
        if split not in self.splits:
            raise DatasetError(f"split {split!r}: allowed are {', '.join(SPLITS)}")
        return self.splits[split]


def load_dataset(directory: Path) -> Dataset:
    """Load and verify a dataset directory, in the project's own or the published layout.

    Raises ``DatasetError`` naming file and line for a line that is not a row, a row in the wrong file, a wrong or
    repeated id, and rows that carry different texts; ``IntegrityError`` if the manifest states another content hash.
    """
    layout = find_layout(directory)
    contents = [read_file(directory, file) for file in layout.files]
    seen: dict[str, str] = {}
    splits: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for content in contents:
        for line in content.lines:
            row = _verified(directory, line)
            first = seen.setdefault(row.id, line.place)
            if first != line.place:
                raise DatasetError(f"{directory / line.place}: repeats the row of {first} (id {row.id})")
            splits[content.file.split].append(row)
    if layout.name == PUBLISHED:
        for rows in splits.values():
            rows.sort(key=lambda row: generation_key(row.metadata))
    content_hash = content_sha256(seen)
    manifest, hashes = _manifest(directory, layout.manifest, content_hash)
    try:
        prompts = pack_from_rows(row.to_dict() for split in SPLITS for row in splits[split])
    except DatasetError as error:
        raise DatasetError(f"{directory}: {error}") from None
    return Dataset(
        directory=directory,
        layout=layout.name,
        content_sha256=content_hash,
        file_hashes={**_file_hashes(contents), **hashes},
        manifest=manifest,
        prompts=prompts,
        splits={split: tuple(rows) for split, rows in splits.items()},
    )


def _verified(directory: Path, line: Line) -> Row:
    """The line's row, or a ``DatasetError`` that says what is wrong with it."""
    row = line.row
    if row is None:
        raise DatasetError(f"{directory / line.place}: {line.problem}")
    if row_id(row.messages, row.metadata) != row.id:
        raise DatasetError(
            f"{directory / line.place}: key 'id' is {row.id}, but messages and metadata hash to "
            f"{row_id(row.messages, row.metadata)}; the row was changed after it was made"
        )
    if row.split != line.file.split:
        raise DatasetError(
            f"{directory / line.place}: metadata key 'split' is {row.split!r} in a file of {line.file.split}"
        )
    if line.file.stratum is not None and stratum(row) != line.file.stratum:
        raise DatasetError(f"{directory / line.place}: an {stratum(row)} row in the file of {line.file.stratum}")
    return row


def _manifest(directory: Path, name: str | None, content_hash: str) -> tuple[DatasetManifest | None, dict[str, str]]:
    if name is None:
        return None, {}
    path = directory / name
    text = read_manifest_text(directory, name)
    try:
        body = parse_object(text)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    manifest = DatasetManifest.from_dict(body, str(path))
    if manifest.content_sha256 != content_hash:
        raise IntegrityError(
            path, manifest.content_sha256, content_hash, "the rows are not those that the manifest was written for"
        )
    return manifest, {name: sha256_text(text)}


def _file_hashes(contents: list[FileContent]) -> dict[str, str]:
    return {content.file.name: content.sha256 for content in contents}
