"""Audits a dataset directory independently of whatever built it (dataset specification, "Audit").

Every rule is judged from the bytes of the files and from the seeds: ids are computed again, states generated again,
solved again and written as user messages again, and the set of rows that should be there is worked out again. What the
builder counted is only compared with that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena_pipeline.arena.parser import Verdict
from arena_pipeline.arena.state import ACTION_KINDS
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.sft.audit_files import check_lines, check_manifest, check_recorded, read_manifest, row_name
from arena_pipeline.sft.audit_labels import EMPTY_LABEL, Facts, RowKey, plain_keys, targeted_keys
from arena_pipeline.sft.audit_report import AuditReport, Failure
from arena_pipeline.sft.audit_rows import check_row, common_texts, parse_label, user_object
from arena_pipeline.sft.manifest import DatasetManifest
from arena_pipeline.sft.reading import OWN, FileContent, Line, find_layout, read_file
from arena_pipeline.sft.rows import Row, content_sha256, generation_key, row_id
from arena_pipeline.sft.splits import SPLITS

__all__ = ["AuditReport", "Failure", "audit_dataset"]

_DATASET = "dataset"
_PROGRESS_STEP = 256

Audited = tuple[Line, Row, Verdict]


def audit_dataset(
    directory: Path,
    require_split_action_coverage: bool = False,
    recorded_hashes: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a dataset directory in the project's own or the published layout.

    ``require_split_action_coverage`` demands every action kind in each split, not only in the whole.
    ``recorded_hashes`` (file name -> SHA-256, manifest included) are what the files' bytes must hash to. Broken rules
    are reported, not raised; ``DatasetError`` is raised only where there is no dataset directory to read.
    """
    layout = find_layout(directory)
    contents = [read_file(directory, file) for file in layout.files]
    failures = [failure for content in contents for failure in check_lines(content, layout.name)]
    manifest, manifest_failures = read_manifest(directory, layout)
    failures += manifest_failures
    file_hashes = {content.file.name: content.sha256 for content in contents}
    if layout.manifest is not None:
        file_hashes[layout.manifest] = sha256_file(directory / layout.manifest)
    if recorded_hashes is not None:
        failures += check_recorded(file_hashes, recorded_hashes)

    facts = Facts()
    pairs = [(line, line.row) for content in contents for line in content.lines if line.row is not None]
    rows = [row for _, row in pairs]
    users = [user_object(row) for row in rows]
    texts = common_texts(zip(rows, users, strict=True))
    audited: list[Audited] = []
    for done, ((line, row), user) in enumerate(zip(pairs, users, strict=True)):
        verdict = parse_label(row, facts.of(row.skill, row.seed))
        findings = check_row(line, row, user, verdict, facts, texts)
        failures += [Failure(row_name(line), *finding) for finding in findings]
        audited.append((line, row, verdict))
        if done % _PROGRESS_STEP == 0:
            progress("dataset audit", done, len(pairs))
    progress("dataset audit", len(pairs), len(pairs))

    computed = [row_id(row.messages, row.metadata) for row in rows]
    content_hash = content_sha256(computed)
    failures += _duplicates(pairs, computed)
    if layout.name == OWN:
        failures += [failure for content in contents for failure in _order(content)]
    rejections: Counter[str] = Counter()
    failures += _membership(pairs, _expected_keys(facts, manifest, rows, rejections))
    if manifest is not None and layout.manifest is not None:
        failures += check_manifest(layout.manifest, manifest, rows, content_hash, texts.version, rejections)
    counts = {**_counts(audited), "rejections": dict(sorted(rejections.items()))}
    failures += _coverage(counts, rows, require_split_action_coverage)
    return AuditReport(
        directory=directory,
        layout=layout.name,
        content_sha256=content_hash,
        file_hashes=file_hashes,
        required_split_action_coverage=require_split_action_coverage,
        counts=counts,
        failures=tuple(failures),
    )


def _key(row: Row) -> RowKey:
    return row.skill, row.seed, row.phase, row.agent_id


def _duplicates(pairs: Sequence[tuple[Line, Row]], ids: Sequence[str]) -> Iterator[Failure]:
    by_id: dict[str, Line] = {}
    by_key: dict[RowKey, Line] = {}
    for (line, row), identifier in zip(pairs, ids, strict=True):
        first = by_id.setdefault(identifier, line)
        if first is not line:
            yield Failure(row_name(line), "duplicate_id", f"has the same content as {first.place}")
            continue
        first = by_key.setdefault(_key(row), line)
        if first is not line:
            yield Failure(row_name(line), "duplicate_row", f"is of the same seed, phase and agent as {first.place}")


def _order(content: FileContent) -> Iterator[Failure]:
    """The rows that would have to move for the file to be in generation order: as few as possible."""
    lines = [line for line in content.lines if line.row is not None]
    keys = [generation_key(line.row.metadata) for line in lines if line.row is not None]
    kept = longest_ascending(keys)
    for number, line in enumerate(lines):
        if number not in kept:
            yield Failure(row_name(line), "row_order", "does not stand where generation order puts it")


def longest_ascending(keys: Sequence[Any]) -> set[int]:
    """The positions of a longest subsequence that never descends."""
    ends: list[Any] = []
    positions: list[int] = []
    before: list[int] = []
    for position, key in enumerate(keys):
        length = bisect_right(ends, key)
        ends[length : length + 1] = [key]
        before.append(positions[length - 1] if length else -1)
        positions[length : length + 1] = [position]
    kept: set[int] = set()
    position = positions[-1] if positions else -1
    while position >= 0:
        kept.add(position)
        position = before[position]
    return kept


def _expected_keys(
    facts: Facts, manifest: DatasetManifest | None, rows: Sequence[Row], rejections: Counter[str]
) -> list[RowKey]:
    """The rows that should be there, by the manifest's seeds or, without a usable one, by the seeds of the rows."""
    plain = {row.seed for row in rows if not row.skill}
    start, count = min(plain, default=0), len(plain)
    # A manifest that states more seeds than there are rows is wrong, and its range might take for ever to solve.
    if manifest is not None and manifest.num_seeds <= len(rows):
        start, count = manifest.start_seed, manifest.num_seeds
    return [*plain_keys(facts, range(start, start + count), rejections), *targeted_keys(facts, start, rejections)]


def _membership(pairs: Sequence[tuple[Line, Row]], expected: Sequence[RowKey]) -> Iterator[Failure]:
    found = {_key(row) for _, row in pairs}
    for skill, seed, phase, agent_id in expected:
        if (skill, seed, phase, agent_id) not in found:
            yield Failure(_DATASET, "missing_row", f"no {phase} row of seed {seed}, {agent_id}{skill and f', {skill}'}")
    wanted = set(expected)
    for line, row in pairs:
        if _key(row) not in wanted:
            yield Failure(row_name(line), "unexpected_row", "the dataset of these seeds has no such row")


def _counts(audited: Sequence[Audited]) -> dict[str, Any]:
    actions = [(row, verdict) for _, row, verdict in audited if row.phase == "ACT"]
    chosen = [(row, verdict.value.kind) for row, verdict in actions if verdict.valid]
    broadcasts = [verdict for _, row, verdict in audited if row.phase == "BROADCAST" and verdict.valid]
    return {
        "action_kinds": _tally(kind for _, kind in chosen),
        "action_kinds_by_split": {
            split: _tally(kind for row, kind in chosen if row.split == split) for split in SPLITS
        },
        "action_positions": _tally(_position(row) for row, verdict in actions if verdict.valid),
        "broadcast_fact_counts": _tally(str(verdict.facts) for verdict in broadcasts),
        "num_examples": len(audited),
        "num_unique_seeds": len({row.seed for _, row, _ in audited}),
        "phases": _tally(row.phase for _, row, _ in audited),
        "verified_solver_seeds": len({row.seed for row, _ in actions}),
    }


def _position(row: Row) -> str:
    return "".join(character for character in row.label if character.isdigit())


def _tally(values: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _coverage(counts: Mapping[str, Any], rows: Sequence[Row], each_split: bool) -> Iterator[Failure]:
    for kind in ACTION_KINDS:
        if kind not in counts["action_kinds"]:
            yield Failure(_DATASET, "action_kinds", f"no ACT row is labelled {kind}")
    if each_split:
        for split, kinds in counts["action_kinds_by_split"].items():
            for kind in ACTION_KINDS:
                if kind not in kinds:
                    yield Failure(f"{split} split", "split_action_coverage", f"no ACT row is labelled {kind}")
    if not any(row.label == EMPTY_LABEL for row in rows):
        yield Failure(_DATASET, "silence", "no BROADCAST row teaches the empty broadcast")
