"""Runs a frozen evaluation into a directory, and computes a finished one again from its saved responses.

The directory holds ``evaluation.json`` (what is asked of whom, written before the first prompt is sent),
``responses-broadcast.jsonl`` and ``responses-action.jsonl`` (every raw reply), ``rows.jsonl`` (one row per case) and
``summary.json``. The last two follow from the others and nothing else.

Source: evaluation specification, "Frozen-arena evaluation of a model" and "The sealed sets open once".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from arena_pipeline.arena.manifests import MANIFESTS, SEALED_MANIFESTS, Case, manifest_sha256
from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.cases import manifest_cases, solved_case
from arena_pipeline.evaluation.conditions import EVALUATOR_VERSION, plan_actions, plan_broadcasts
from arena_pipeline.evaluation.rows import CaseRow, Subject, score
from arena_pipeline.evaluation.summary import summarize
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.files import read_json, write_json, write_text
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.serving.requests import Provider
from arena_pipeline.serving.responses import ResponseStore, collect
from arena_pipeline.serving.sealed import require_opening

PLAN_FILE: Final = "evaluation.json"
BROADCAST_RESPONSES_FILE: Final = "responses-broadcast.jsonl"
ACTION_RESPONSES_FILE: Final = "responses-action.jsonl"
ROWS_FILE: Final = "rows.jsonl"
SUMMARY_FILE: Final = "summary.json"

_SEALED_SEEDS: Final = frozenset(case.seed for name in SEALED_MANIFESTS for case in MANIFESTS[name])


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation: its rows, one per case, and its summary."""

    rows: list[CaseRow]
    summary: dict[str, Any]


def is_sealed(cases: Sequence[Case]) -> bool:
    """Whether any of the cases belongs to a sealed manifest."""
    return any(case.seed in _SEALED_SEEDS for case in cases)


def evaluate(
    directory: Path,
    manifest: str,
    pack: PromptPack,
    provider: Provider,
    *,
    batch_size: int,
    opened_for_adapter: str | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Play every case of a manifest and write the evaluation directory; an interrupted one is resumed.

    ``manifest`` is a name as ``manifest_cases`` takes it; ``opened_for_adapter`` is the adapter SHA-256 of the
    ledger's opening, if the caller opened the sealed set. Raises ``SealedSetRefused`` for sealed cases without an
    opening for the provider's adapter, before any prompt is sent, and ``EvaluationError`` if the directory holds
    another evaluation.
    """
    cases = manifest_cases(manifest)
    if is_sealed(cases):
        require_opening(directory, provider.identity, opened_for_adapter)
    subject = Subject(manifest, cases, pack, provider.identity)
    _bind(directory, subject, batch_size)
    for done, case in enumerate(cases):
        progress("solving cases", done, len(cases))
        solved_case(case)
    progress("solving cases", len(cases), len(cases))
    broadcasts = collect(
        plan_broadcasts(cases, pack),
        provider,
        ResponseStore(directory / BROADCAST_RESPONSES_FILE),
        batch_size,
        progress,
    )
    actions = collect(
        plan_actions(cases, pack, broadcasts),
        provider,
        ResponseStore(directory / ACTION_RESPONSES_FILE),
        batch_size,
        progress,
    )
    rows = score(subject, broadcasts, actions)
    summary = summarize(rows, cases)
    write_text(directory / ROWS_FILE, _rows_text(rows))
    write_json(directory / SUMMARY_FILE, summary)
    return Evaluation(rows, summary)


def recompute(directory: Path) -> Evaluation:
    """Compute rows and summary again from the saved responses, and compare them with the files.

    Raises ``EvaluationError`` naming the first line or key that differs, or what is missing; ``IntegrityError`` where a
    responses file was changed after it was written.
    """
    subject, batch_size = _bound(directory)
    stores = [ResponseStore(directory / name) for name in (BROADCAST_RESPONSES_FILE, ACTION_RESPONSES_FILE)]
    for store in stores:
        header = store.header()
        if header["identity"] != subject.identity or header["batch_size"] != batch_size:
            raise EvaluationError(f"{store.path}: not of the model and batch size that {PLAN_FILE} names")
    broadcasts = stores[0].completions(plan_broadcasts(subject.cases, subject.pack))
    actions = stores[1].completions(plan_actions(subject.cases, subject.pack, broadcasts))
    rows = score(subject, broadcasts, actions)
    _compare_lines(directory / ROWS_FILE, _rows_text(rows))
    summary = summarize(rows, subject.cases)
    _compare_values(directory / SUMMARY_FILE, summary)
    return Evaluation(rows, summary)


def _bind(directory: Path, subject: Subject, batch_size: int) -> None:
    """Write the directory's plan, or make sure that the one there is the same."""
    path = directory / PLAN_FILE
    plan = _plan(subject) | {"batch_size": batch_size}
    if not path.exists():
        write_json(path, plan)
        return
    found = read_json(path)
    for key in sorted(plan.keys() | found.keys()):
        if found.get(key) != plan.get(key):
            raise EvaluationError(
                f"{path}: this directory holds another evaluation ({key} differs); use another directory or remove it"
            )


def _plan(subject: Subject) -> dict[str, Any]:
    return {
        "evaluator_version": EVALUATOR_VERSION,
        "manifest": subject.manifest,
        "manifest_sha256": manifest_sha256(subject.cases),
        "cases": [list(case) for case in subject.cases],
        "prompts": asdict(subject.pack),
        "prompt_sha256": subject.pack.sha256,
        "model": dict(subject.identity),
    }


def _bound(directory: Path) -> tuple[Subject, int]:
    """What ``evaluation.json`` says, with the manifest's cases and every hash computed again, and its batch size."""
    path = directory / PLAN_FILE
    found = read_json(path)
    try:
        subject = Subject(
            found["manifest"], manifest_cases(found["manifest"]), PromptPack(**found["prompts"]), found["model"]
        )
        expected = _plan(subject) | {"batch_size": found["batch_size"]}
    except (KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: not the plan of an evaluation ({error!r})") from None
    if place := difference(found, json.loads(canonical_json(expected))):
        raise EvaluationError(f"{path}: {place}, computed again from the manifest's name and the prompts")
    return subject, found["batch_size"]


def _rows_text(rows: Sequence[CaseRow]) -> str:
    return "".join(canonical_json(row) + "\n" for row in rows)


def _compare_lines(path: Path, expected: str) -> None:
    try:
        found = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(f"{path}: cannot be read ({error})") from None
    if found == expected:
        return
    found_lines, expected_lines = found.split("\n"), expected.split("\n")
    for number, (left, right) in enumerate(zip(found_lines, expected_lines, strict=False), start=1):
        if left != right:
            raise EvaluationError(f"{path}:{number}: {_first_difference(left, right)}, recomputed from the responses")
    raise EvaluationError(f"{path}: {len(found_lines) - 1} rows, but the responses give {len(expected_lines) - 1}")


def _first_difference(found: str, expected: str) -> str:
    """Where two rows' texts differ, in terms of their keys if both are JSON."""
    try:
        place = difference(json.loads(found), json.loads(expected))
    except ValueError:
        place = None
    return place or "its text differs from the row's"


def _compare_values(path: Path, expected: Mapping[str, Any]) -> None:
    if place := difference(read_json(path), json.loads(canonical_json(expected))):
        raise EvaluationError(f"{path}: {place}, recomputed from the rows")


def difference(found: Any, expected: Any, path: str = "") -> str | None:
    """The first place where two JSON values differ, as ``key.path is X instead of Y``; None if they are equal."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted(found.keys() | expected.keys()):
            if key not in found or key not in expected:
                return f"{path}{key} is {'absent' if key not in found else 'there'} and should not be"
            if place := difference(found[key], expected[key], f"{path}{key}."):
                return place
        return None
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for index, (left, right) in enumerate(zip(found, expected, strict=True)):
            if place := difference(left, right, f"{path}{index}."):
                return place
        return None
    if type(found) is type(expected) and found == expected:
        return None
    return f"{path.rstrip('.')} is {found!r} instead of {expected!r}"
