"""Scoring a model's replies to rows of a split: strict parser against the rows' states, labels compared as values.

Works the same for the overfit set, validation and the test split. A scored directory holds ``responses.jsonl`` (every
raw reply), ``verdicts.jsonl`` (one line per row) and ``summary.json``; the last two follow from the first and the
rows.

Source: dataset specification, "Protocol"; evaluation specification, "Checkpoint selection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arena_pipeline.arena.observation import displayed_actions
from arena_pipeline.arena.parser import Verdict, parse_action, parse_broadcast
from arena_pipeline.arena.prompts import Phase
from arena_pipeline.errors import DatasetError, EvaluationError
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.files import read_json, write_json, write_text
from arena_pipeline.provenance.hashing import canonical_json, sha256_json
from arena_pipeline.serving.replies import reply_record
from arena_pipeline.serving.requests import Completion, Provider
from arena_pipeline.serving.responses import ResponseStore, collect
from arena_pipeline.serving.sealed import require_opening
from arena_pipeline.sft.rows import Row, content_sha256, row_requests, row_state

SCORER_VERSION: Final = "arena-score-v1"
SEALED_SPLIT: Final = "test"
RESPONSES_FILE: Final = "responses.jsonl"
VERDICTS_FILE: Final = "verdicts.jsonl"
SUMMARY_FILE: Final = "summary.json"

_PHASES: Final[tuple[Phase, ...]] = ("ACT", "BROADCAST")

RowVerdict = dict[str, Any]


def score_split(
    directory: Path,
    rows: Sequence[Row],
    provider: Provider,
    *,
    step: int | None,
    batch_size: int,
    opened_for_adapter: str | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Ask a provider every row's prompt and write the scored directory; an interrupted one is resumed.

    ``step`` is the checkpoint's optimizer step, None for a model that is no checkpoint of a run;
    ``opened_for_adapter`` is the adapter SHA-256 of the ledger's opening, if the caller opened the test split.
    Returns the summary. Raises ``SealedSetRefused`` for test rows without an opening for the provider's adapter,
    before any prompt is sent, and ``EvaluationError`` if the directory holds the responses of another model or of
    other rows.
    """
    if any(row.split == SEALED_SPLIT for row in rows):
        require_opening(directory, provider.identity, opened_for_adapter)
    completions = collect(row_requests(rows), provider, ResponseStore(directory / RESPONSES_FILE), batch_size, progress)
    verdicts = score_rows(rows, completions)
    summary = summarize_scores(verdicts, rows, step=step, model=provider.identity)
    write_text(directory / VERDICTS_FILE, _verdicts_text(verdicts))
    write_json(directory / SUMMARY_FILE, summary)
    return summary


def recompute_scores(directory: Path, rows: Sequence[Row]) -> dict[str, Any]:
    """Compute a directory's verdicts and summary again from its responses; ``EvaluationError`` if they differ."""
    store = ResponseStore(directory / RESPONSES_FILE)
    found = read_json(directory / SUMMARY_FILE)
    verdicts = score_rows(rows, store.completions(row_requests(rows)))
    path = directory / VERDICTS_FILE
    if not path.is_file() or path.read_bytes() != _verdicts_text(verdicts).encode("ascii"):
        raise EvaluationError(f"{path}: not the verdicts that the saved responses give; score the split again")
    summary = summarize_scores(verdicts, rows, step=found.get("step"), model=store.header()["identity"])
    wrong = [key for key in sorted(found.keys() | summary.keys()) if found.get(key) != summary.get(key)]
    if wrong:
        raise EvaluationError(
            f"{directory / SUMMARY_FILE}: {wrong[0]} is {found.get(wrong[0])!r}, but the saved responses give "
            f"{summary.get(wrong[0])!r}"
        )
    return summary


def score_rows(rows: Sequence[Row], completions: Mapping[str, Completion]) -> list[RowVerdict]:
    """One verdict per row, in the rows' order: the raw reply, its error code, the three flags and whether it is exact.

    Raises ``EvaluationError`` naming the first row without a reply, and ``DatasetError`` for a label that breaks a
    rule.
    """
    return [_score_row(row, completions) for row in rows]


def _score_row(row: Row, completions: Mapping[str, Completion]) -> RowVerdict:
    if row.id not in completions:
        raise EvaluationError(f"row {row.id}: no reply; every row of the split must be answered, resume the scoring")
    completion = completions[row.id]
    state = row_state(row.metadata)
    displayed = displayed_actions(state, row.agent_id, row.permutation)

    def parse(text: str) -> Verdict:
        return parse_action(text, displayed) if row.phase == "ACT" else parse_broadcast(text, state, row.agent_id)

    verdict, label = parse(completion.text), parse(row.label)
    if not label.valid:
        raise DatasetError(f"row {row.id}: its label breaks rule {label.error}; audit the dataset")
    return {
        "id": row.id,
        "phase": row.phase,
        **reply_record(completion, verdict),
        "exact": verdict.valid and verdict.value == label.value,
        "facts": verdict.facts,
        "unsupported_facts": verdict.unsupported_facts,
        "empty": verdict.empty,
    }


def summarize_scores(
    verdicts: Sequence[RowVerdict], rows: Sequence[Row], *, step: int | None, model: Mapping[str, Any]
) -> dict[str, Any]:
    """A split's ``summary.json``: the four rates of each phase and of both together, and what else a gate counts.

    Raises ``EvaluationError`` unless the verdicts are those of the rows, all of one split, with both phases.
    """
    if [verdict["id"] for verdict in verdicts] != [row.id for row in rows]:
        raise EvaluationError(f"{len(verdicts)} verdicts are not those of the {len(rows)} rows, each once and in order")
    splits = sorted({row.split for row in rows})
    phases = {phase: [verdict for verdict in verdicts if verdict["phase"] == phase] for phase in _PHASES}
    if len(splits) != 1 or not all(phases.values()):
        counts = ", ".join(f"{len(members)} {phase}" for phase, members in phases.items())
        raise EvaluationError(f"rows of splits {splits} ({counts}): a summary is of one split and needs both phases")
    act, broadcast = _figures(phases["ACT"]), _figures(phases["BROADCAST"])
    messages = phases["BROADCAST"]
    return {
        "scorer_version": SCORER_VERSION,
        "split": splits[0],
        "step": step,
        **_figures(verdicts),
        "selection_score": (broadcast["exact"] + act["exact"]) / 2,
        "act": act,
        "broadcast": {
            **broadcast,
            "facts": sum(verdict["facts"] for verdict in messages),
            "unsupported_facts": sum(verdict["unsupported_facts"] for verdict in messages),
            "empty_share": sum(verdict["empty"] for verdict in messages) / len(messages),
        },
        "ids_sha256": content_sha256(row.id for row in rows),
        "verdicts_sha256": sha256_json(list(verdicts)),
        "model": dict(model),
    }


def _figures(verdicts: Sequence[RowVerdict]) -> dict[str, Any]:
    """Counts and rates; ``supported`` is among the schema-valid replies, and 0.0 where there is none."""
    n = len(verdicts)
    well_formed = [verdict for verdict in verdicts if verdict["schema_valid"]]
    counts = {
        "schema_valid": len(well_formed),
        "supported": sum(verdict["supported"] for verdict in well_formed),
        "legal": sum(verdict["legal"] for verdict in verdicts),
        "exact": sum(verdict["exact"] for verdict in verdicts),
    }
    return {
        "examples": n,
        "counts": counts,
        "schema_valid": counts["schema_valid"] / n,
        "supported": counts["supported"] / len(well_formed) if well_formed else 0.0,
        "legal": counts["legal"] / n,
        "exact": counts["exact"] / n,
        "cut_at_token_limit": sum(verdict["finish_reason"] == "length" for verdict in verdicts),
    }


def _verdicts_text(verdicts: Sequence[RowVerdict]) -> str:
    return "".join(canonical_json(verdict) + "\n" for verdict in verdicts)
