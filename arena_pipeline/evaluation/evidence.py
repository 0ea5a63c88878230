"""What a verdict follows from, and the proof that its pieces belong together.

Source: evaluation specification, "Gates" and "The sealed sets open once".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arena_pipeline.errors import EvaluationError
from arena_pipeline.evaluation.comparison import cases_of
from arena_pipeline.evaluation.gate_policy import GatePolicy
from arena_pipeline.evaluation.rows import CaseRow
from arena_pipeline.evaluation.summary import require_rows_of


@dataclass(frozen=True, slots=True)
class ArenaEvidence:
    """Base and tuned model on one manifest, as rows, and the baselines on the same cases."""

    base_rows: Sequence[CaseRow]
    tuned_rows: Sequence[CaseRow]
    baselines: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SealedEvidence:
    """What the sealed sets said: the test summary, the sealed arena, and which opening of them it was, from 1."""

    test: Mapping[str, Any]
    arena: ArenaEvidence
    opening: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict follows from.

    ``selection`` is ``select``'s result; ``validation`` is the selected checkpoint's summary, or the best-scoring
    one's where none is eligible. ``ids_sha256`` maps "validation" and "test" to the hash of the dataset's row ids,
    which a summary of that split must name. ``sealed`` is None where the sealed sets stayed closed, and
    ``closed_because`` then says why. ``result`` is False for a rehearsal, which promotes nothing. ``openings`` are the
    ledger's records for this sealed set as dictionaries (a verdict lists those up to its own, so that later ones do not
    change it), and ``openings_elsewhere`` exported ones of other instances.
    """

    experiment: str
    code_version: str
    policy: GatePolicy
    dataset_version: str
    dataset_sha256: str
    manifest_sha256: str
    base_sha256: str
    adapter_sha256: str
    selection: Mapping[str, Any]
    validation: Mapping[str, Any]
    ids_sha256: Mapping[str, str]
    development: ArenaEvidence | None = None
    sealed: SealedEvidence | None = None
    closed_because: str = ""
    result: bool = True
    openings: Sequence[Mapping[str, Any]] = ()
    openings_elsewhere: Sequence[Mapping[str, Any]] = ()


def require_consistent(evidence: Evidence) -> None:
    """Raise ``EvaluationError`` unless all pieces are of one base, adapter, split, manifest and opening."""
    _require_split(evidence, evidence.validation, "validation")
    _require_models(evidence, "validation", evidence.validation, None)
    selected = evidence.selection["selected_step"]
    judged = evidence.selection["best_scoring_step"] if selected is None else selected
    _require("validation", "step", evidence.validation.get("step"), judged)
    if evidence.development:
        _require_arena(evidence, "development", evidence.development)
    sealed = evidence.sealed
    if sealed is None:
        if not evidence.closed_because:
            raise EvaluationError("a verdict without sealed results must say why the sealed sets stayed closed")
        return
    if selected is None:
        raise EvaluationError("sealed results are given, but no checkpoint was eligible to be tested")
    _require_split(evidence, sealed.test, "test")
    _require_models(evidence, "test", sealed.test, None)
    _require_arena(evidence, "sealed arena", sealed.arena)
    _require("sealed arena", "manifest_sha256", sealed.arena.tuned_rows[0]["manifest_sha256"], evidence.manifest_sha256)
    so_far = openings_so_far(evidence)
    if [opening["ordinal"] for opening in so_far] != list(range(1, sealed.opening + 1)):
        raise EvaluationError(
            f"opening {sealed.opening}: the ledger lists {len(evidence.openings)} openings of this set"
        )
    _require(f"opening {sealed.opening}", "adapter_sha256", so_far[-1]["adapter_sha256"], evidence.adapter_sha256)


def openings_so_far(evidence: Evidence) -> list[Mapping[str, Any]]:
    """The openings of the sealed set up to this experiment's, in order; none where it stayed closed."""
    if evidence.sealed is None:
        return []
    so_far = [opening for opening in evidence.openings if opening["ordinal"] <= evidence.sealed.opening]
    return sorted(so_far, key=lambda opening: int(opening["ordinal"]))


def _require_split(evidence: Evidence, summary: Mapping[str, Any], split: str) -> None:
    _require(split, "split", summary.get("split"), split)
    _require(split, "ids_sha256", summary.get("ids_sha256"), evidence.ids_sha256[split])


def _require_arena(evidence: Evidence, what: str, arena: ArenaEvidence) -> None:
    for rows in (arena.base_rows, arena.tuned_rows):
        require_rows_of(rows, cases_of(rows))
    _require_models(evidence, what, arena.tuned_rows[0], arena.base_rows[0])
    manifest = arena.tuned_rows[0]["manifest_sha256"]
    _require(f"{what} baselines", "manifest_sha256", arena.baselines["manifest_sha256"], manifest)


def _require_models(evidence: Evidence, what: str, tuned: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    _require(what, "base_sha256", tuned["model"]["base_sha256"], evidence.base_sha256)
    _require(what, "adapter_sha256", tuned["model"]["adapter_sha256"], evidence.adapter_sha256)
    if base is not None:
        _require(f"{what} of the base", "base_sha256", base["model"]["base_sha256"], evidence.base_sha256)
        _require(f"{what} of the base", "adapter_sha256", base["model"]["adapter_sha256"], None)


def _require(what: str, key: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise EvaluationError(
            f"{what}: {key} is {found!r}, but the verdict is about {expected!r}; recompute that stage"
        )
