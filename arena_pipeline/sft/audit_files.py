"""The audit's rules for files as bytes: the form of each line, recorded hashes, and what the manifest states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arena_pipeline.arena.generation import GENERATOR_VERSION
from arena_pipeline.arena.state import ARENA_VERSION
from arena_pipeline.errors import DatasetError
from arena_pipeline.sft.audit_labels import QUOTAS, SILENCE_COUNT
from arena_pipeline.sft.audit_report import Failure
from arena_pipeline.sft.manifest import DatasetManifest
from arena_pipeline.sft.reading import OWN, FileContent, Layout, Line, parse_object, read_manifest_text
from arena_pipeline.sft.rows import Row

Form = tuple[bool, bool, bool]
"""(keys sorted, spaces after separators, non-ASCII escaped)"""

CANONICAL: Final[Form] = (True, True, True)
_FORMS: Final[tuple[Form, ...]] = tuple(
    (in_order, spaced, escaped) for in_order in (True, False) for spaced in (True, False) for escaped in (True, False)
)
_SAMPLE: Final = 16
_SHOWN_KEYS: Final = ("seed", "agent_id", "phase", "targeted_skill")


def row_name(line: Line) -> str:
    """A line's place, with what its row says it is."""
    if line.row is None:
        return line.place
    said = " ".join(str(line.row.metadata[key]) for key in _SHOWN_KEYS if key in line.row.metadata)
    return f"{line.place} ({said})"


def check_lines(content: FileContent, layout: str) -> Iterator[Failure]:
    """Lines that hold no row, or are not written as their file writes lines.

    The project's own layout has one form, the canonical one. A published copy may be written otherwise, but all lines
    of a file alike: the form that the file's first lines have. If they have none of the forms known, only content is
    checked. Metadata is either without defaults in a whole file, or filled to the same keys in all its lines.
    """
    form = CANONICAL if layout == OWN else _form_of(content.lines)
    filled_keys = _filled_keys(content.lines)
    for line in content.lines:
        if line.row is None:
            yield Failure(line.place, line.rule, line.problem)
        if line.body is None:
            continue
        if form is not None and _written(line.body, form) != line.text:
            yield Failure(row_name(line), "line_form", "the line is not the serialisation of its row")
        if line.row is not None:
            wanted = line.row.metadata.keys() if filled_keys is None else filled_keys
            for key in sorted(line.body["metadata"].keys() ^ wanted):
                yield Failure(
                    row_name(line), "defaults", f"in metadata key {key!r} it differs from the file's other rows"
                )


def _filled_keys(lines: Sequence[Line]) -> frozenset[str] | None:
    """The keys that the file's metadata is filled to, or None if most of its rows have just those of their kind."""
    filled: Counter[frozenset[str]] = Counter()
    rows = 0
    for line in lines:
        if line.body is not None and line.row is not None:
            rows += 1
            if len(line.body["metadata"]) > len(line.row.metadata):
                filled[frozenset(line.body["metadata"])] += 1
    return filled.most_common(1)[0][0] if 2 * filled.total() > rows else None


def _form_of(lines: Sequence[Line]) -> Form | None:
    sample = [line for line in lines if line.body is not None][:_SAMPLE]
    hits = {form: sum(_written(line.body, form) == line.text for line in sample) for form in _FORMS}
    best = max(_FORMS, key=lambda form: hits[form])
    return best if hits[best] else None


def _written(body: Any, form: Form) -> str:
    in_order, spaced, escaped = form
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(body, sort_keys=in_order, separators=separators, ensure_ascii=escaped)


def check_recorded(found: Mapping[str, str], recorded: Mapping[str, str]) -> Iterator[Failure]:
    """Files whose bytes are not those recorded, or that were not there when the hashes were recorded."""
    for name in sorted(found.keys() | recorded.keys()):
        if found.get(name) != recorded.get(name):
            yield Failure(
                name,
                "file_sha256",
                f"recorded {recorded.get(name, 'nothing')}, found {found.get(name, 'no such file')}",
            )


def read_manifest(directory: Path, layout: Layout) -> tuple[DatasetManifest | None, list[Failure]]:
    """The manifest, if there is one of the right form, and failures of form."""
    if layout.manifest is None:
        return None, []
    name = layout.manifest
    try:
        text = read_manifest_text(directory, name)
        manifest = DatasetManifest.from_dict(parse_object(text), name)
    except DatasetError as error:
        return None, [Failure(name, "manifest_form", str(error))]
    if layout.name == OWN and text != manifest.text():
        return manifest, [Failure(name, "manifest_form", "not the indented key-sorted JSON of its content")]
    return manifest, []


def check_manifest(
    name: str, manifest: DatasetManifest, rows: Sequence[Row], content_hash: str, version: str, rejections: Counter[str]
) -> Iterator[Failure]:
    """Every value that the manifest states, against what the rows say."""
    plain = {row.seed for row in rows if not row.skill}
    expected = {
        "arena_version": ARENA_VERSION,
        "content_sha256": content_hash,
        "dataset_version": "arena-sft-v2",
        "examples_by_phase": dict(Counter(row.phase for row in rows)),
        "examples_by_split": dict(Counter(row.split for row in rows)),
        "generator_version": GENERATOR_VERSION,
        "num_examples": len(rows),
        "num_seeds": len(plain),
        "prompt_version": version,
        "rejections": dict(rejections),
        "start_seed": min(plain, default=0),
        "targeted_mechanics_per_kind": sum(QUOTAS.values()),
        "targeted_silence_examples": SILENCE_COUNT,
    }
    stated = manifest.to_dict()
    for key, value in expected.items():
        if stated[key] != value:
            yield Failure(name, "manifest", f"key {key!r} states {stated[key]!r}, the rows give {value!r}")
    if manifest.generation_workers < 1:
        yield Failure(name, "manifest", "key 'generation_workers' states 0, at least 1 process built the rows")
