"""Which checkpoint goes on: by behaviour on validation alone, never by training loss.

Source: evaluation specification, "Checkpoint selection".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arena_pipeline.errors import ArenaError, EvaluationError
from arena_pipeline.experiments import RESULT_CHECKPOINTS
from arena_pipeline.provenance.files import read_json
from arena_pipeline.sft.rows import Row, content_sha256

SELECTION_SPLIT: Final = "validation"

_PHASES: Final = ("act", "broadcast")
_RATES: Final = ("schema_valid", "supported", "legal", "exact")
_SCORE_ROUNDING: Final = 5e-4
_DIGITS_KEPT: Final = 12


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The least rates a checkpoint needs on validation to be eligible.

    The defaults are the specification's, for summaries from anywhere. In the graph they come ``of_gates``: the policy
    in force may be stricter, and a checkpoint that fails its protocol gates must not be chosen before one that passes.
    """

    action_schema: float = 0.995
    broadcast_schema: float = 0.99
    broadcast_supported: float = 1.0
    legal_actions: float = 0.95

    @classmethod
    def of_gates(cls, thresholds: Mapping[str, float]) -> Eligibility:
        """What a gate policy's thresholds ask of validation; none allows an unsupported fact, so all are supported."""
        return cls(
            action_schema=thresholds["action_schema"],
            broadcast_schema=thresholds["broadcast_schema"],
            legal_actions=thresholds["legal_actions"],
        )

    def failures(self, summary: Mapping[str, Any]) -> list[str]:
        """The names of the gates that a summary's checkpoint fails."""
        act, broadcast = summary["act"], summary["broadcast"]
        passes = {
            "action_schema": act["schema_valid"] >= self.action_schema,
            "broadcast_schema": broadcast["schema_valid"] >= self.broadcast_schema,
            "unsupported_facts": broadcast["supported"] >= self.broadcast_supported,
            "legal_actions": act["legal"] >= self.legal_actions,
        }
        return [gate for gate, passed in passes.items() if not passed]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint's validation summary and where it was read."""

    source: str
    summary: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise ``EvaluationError`` naming the key if the summary is not of validation or lacks a figure."""
        if self.summary.get("split") != SELECTION_SPLIT:
            raise EvaluationError(
                f"{self.source}: split is {self.summary.get('split')!r}; checkpoints are selected on "
                f"{SELECTION_SPLIT} alone"
            )
        self._require_count(self.summary, "examples")
        self._require_rates(self.summary, "")
        for phase in _PHASES:
            figures = self.summary.get(phase)
            if not isinstance(figures, Mapping):
                raise EvaluationError(f"{self.source}: key {phase!r} is missing; it holds the phase's figures")
            self._require_count(figures, "examples", f"{phase}.")
            self._require_rates(figures, f"{phase}.")
        claimed = self.summary.get("selection_score")
        if claimed is None or not _is_rate(claimed) or abs(claimed - self.score) > _SCORE_ROUNDING:
            raise EvaluationError(
                f"{self.source}: selection_score is {claimed!r}, but the mean of broadcast and action exact is "
                f"{self.score}"
            )

    @property
    def score(self) -> float:
        """The selection score, computed again: the mean of broadcast exact and action exact."""
        exact: float = self.summary["broadcast"]["exact"] + self.summary["act"]["exact"]
        return round(exact / 2, _DIGITS_KEPT)

    @property
    def step(self) -> int:
        """The optimizer step of the checkpoint; ``EvaluationError`` if the summary names none."""
        step = self.summary.get("step")
        if type(step) is not int or step < 0:
            raise EvaluationError(
                f"{self.source}: step is {step!r}; a checkpoint's summary names its step, an integer >= 0"
            )
        return step

    def rank(self) -> tuple[float, float, float, float, float, int]:
        """Sorts candidates from worst to best: the selection score, its tie-breaks, then the earlier step."""
        act, broadcast = self.summary["act"], self.summary["broadcast"]
        return (self.score, broadcast["exact"], act["exact"], broadcast["supported"], act["legal"], -self.step)

    def examples(self) -> tuple[int, int, int]:
        """How many examples it was scored on: all, ACT, BROADCAST."""
        return (self.summary["examples"], *(self.summary[phase]["examples"] for phase in _PHASES))

    def _require_count(self, figures: Mapping[str, Any], key: str, prefix: str = "") -> None:
        if type(figures.get(key)) is not int or figures[key] < 1:
            raise EvaluationError(f"{self.source}: {prefix}{key} is {figures.get(key)!r}; it must be an integer >= 1")

    def _require_rates(self, figures: Mapping[str, Any], prefix: str) -> None:
        for key in _RATES:
            if not _is_rate(figures.get(key)):
                raise EvaluationError(
                    f"{self.source}: {prefix}{key} is {figures.get(key)!r}; it must be a rate in 0..1"
                )


def read_candidate(path: Path) -> Candidate:
    """Read a validation ``summary.json``; errors name the file and the key."""
    summary = read_json(path)
    if not isinstance(summary, dict):
        raise ArenaError(f"{path}: not a JSON object; a checkpoint's summary.json is one")
    return Candidate(str(path), summary)


def select(
    candidates: Sequence[Candidate], base: Candidate | None = None, eligibility: Eligibility | None = None
) -> dict[str, Any]:
    """Select the best eligible checkpoint.

    Returns ``selected_step`` (None if none is eligible), ``num_eligible``, ``best_scoring_step`` (eligible or not)
    and ``candidates``: per checkpoint, by step, its ``step``, ``source``, ``eligible``, ``failures`` (gate names),
    figures and, with a base, ``score_difference_to_base``. Raises ``EvaluationError`` where candidates cannot be
    compared.
    """
    rule = eligibility or Eligibility()
    _require_alike(candidates, base)
    failures = {candidate.step: rule.failures(candidate.summary) for candidate in candidates}
    eligible = [candidate for candidate in candidates if not failures[candidate.step]]
    return {
        "selected_step": max(eligible, key=Candidate.rank).step if eligible else None,
        "num_eligible": len(eligible),
        "best_scoring_step": max(candidates, key=Candidate.rank).step,
        "base_selection_score": base.score if base else None,
        "candidates": [
            {
                "step": candidate.step,
                "source": candidate.source,
                "eligible": not failures[candidate.step],
                "failures": failures[candidate.step],
                "selection_score": candidate.score,
                **{phase: {key: candidate.summary[phase][key] for key in ("examples", *_RATES)} for phase in _PHASES},
                **({"score_difference_to_base": round(candidate.score - base.score, _DIGITS_KEPT)} if base else {}),
            }
            for candidate in sorted(candidates, key=lambda candidate: candidate.step)
        ],
    }


def require_scored_on(candidates: Sequence[Candidate], rows: Sequence[Row], at_least: int = RESULT_CHECKPOINTS) -> None:
    """Raise ``EvaluationError`` unless at least so many candidates were scored on exactly these validation rows."""
    if len(candidates) < at_least:
        raise EvaluationError(
            f"{len(candidates)} checkpoints are measured; at least {at_least} are needed to select one"
        )
    act = sum(row.phase == "ACT" for row in rows)
    expected = (len(rows), act, len(rows) - act)
    ids = content_sha256(row.id for row in rows)
    for candidate in candidates:
        if candidate.examples() != expected or candidate.summary.get("ids_sha256") != ids:
            raise EvaluationError(
                f"{candidate.source}: scored on {candidate.examples()} examples (all, ACT, BROADCAST) of id-hash "
                f"{candidate.summary.get('ids_sha256')}, but the pinned validation split has {expected} of {ids}; "
                "score it again on the whole split"
            )


def _require_alike(candidates: Sequence[Candidate], base: Candidate | None) -> None:
    """Raise ``EvaluationError`` unless all were scored on as many examples, and on the same ones where they say so."""
    if not candidates:
        raise EvaluationError("no checkpoint summary was given; at least one is needed to select from")
    first = candidates[0]
    named: dict[str, str] = {}
    sources: dict[int, str] = {}
    for candidate in [*candidates, *([base] if base else [])]:
        if candidate.examples() != first.examples():
            raise EvaluationError(
                f"{candidate.source}: scored on {candidate.examples()} examples (all, ACT, BROADCAST), but "
                f"{first.source} on {first.examples()}; score both on the whole validation split"
            )
        if ids := candidate.summary.get("ids_sha256"):
            named[ids] = candidate.source
    if len(named) > 1:
        listing = ", ".join(f"{source} has {ids}" for ids, source in named.items())
        raise EvaluationError(
            f"scored on different examples: id-hashes differ ({listing}); score all on the same split"
        )
    for candidate in candidates:
        if candidate.step in sources:
            raise EvaluationError(
                f"{candidate.source} and {sources[candidate.step]}: both are of step {candidate.step}"
            )
        sources[candidate.step] = candidate.source


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= 1
