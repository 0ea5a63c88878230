"""What the audit of a dataset found (dataset specification, "Audit")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """One broken rule: the row (file, line and what the row says it is) or file it is broken in, and what was found."""

    row: str
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.row}: {self.rule}: {self.detail}"


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audit of one directory: every failure, and counts made from the rows alone.

    ``counts`` has ``action_kinds``, ``action_kinds_by_split``, ``action_positions``, ``broadcast_fact_counts``,
    ``num_examples``, ``num_unique_seeds``, ``phases``, ``rejections`` and ``verified_solver_seeds`` (how many distinct
    seeds have an ACT row). ``content_sha256`` is over ids computed from the rows' content, not those that they state.
    """

    directory: Path
    layout: str
    content_sha256: str
    file_hashes: Mapping[str, str]
    required_split_action_coverage: bool
    counts: Mapping[str, Any]
    failures: tuple[Failure, ...]

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.failures

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON, without the directory: equal bytes give equal reports wherever they lie."""
        return {
            **self.counts,
            "content_sha256": self.content_sha256,
            "failures": [asdict(failure) for failure in self.failures],
            "file_sha256": dict(self.file_hashes),
            "layout": self.layout,
            "required_split_action_coverage": self.required_split_action_coverage,
            "valid": self.valid,
        }
