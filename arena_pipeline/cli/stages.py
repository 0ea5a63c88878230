"""A run of the lineage as it goes: a line for each stage that is through, and a bar for the one that is running."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from arena_pipeline.progress import Progress

if TYPE_CHECKING:
    from dagster import EventLogEntry

    from arena_pipeline.cli.screen import Screen

_NAME_WIDTH = 26
_INTERRUPTION = "DagsterExecutionInterruptedError"


class StageLines:
    """Follows a run's events and its steps' progress; ``progress`` is where the bar is told what runs."""

    def __init__(self, screen: Screen, progress: Progress) -> None:
        self._screen = screen
        self._progress = progress
        self._step = ""
        self._began = 0.0
        self._reused: bool | None = None
        self.interrupted = False
        """Whether a step was stopped by Ctrl-C: Dagster takes that for a failure of the step."""

    def event(self, entry: EventLogEntry) -> None:
        """Take in one entry of the event log."""
        event = entry.dagster_event
        if event is None or event.step_key is None:
            return
        if event.is_step_start:
            self._step, self._began, self._reused = event.step_key, time.monotonic(), None
            self._progress(self._step, 0, 0)
        elif event.is_step_materialization:
            materialization = event.step_materialization_data.materialization
            self._reused = bool(materialization.metadata["reused"].value)
        elif event.is_step_success and self._reused is not None:
            self._line("reused" if self._reused else "computed", None if self._reused else "green")
        elif event.is_step_failure:
            error = event.step_failure_data.error
            self.interrupted = error is not None and error.cls_name == _INTERRUPTION
            self._line("stopped" if self.interrupted else "failed", "bold red")

    def report(self, label: str, done: int, total: int) -> None:
        """Take in the progress of the step that is running."""
        self._progress(f"{self._step}: {label}", done, total)

    def _line(self, outcome: str, style: str | None) -> None:
        seconds = time.monotonic() - self._began
        self._screen.line(f"{outcome:<9} {self._step:<{_NAME_WIDTH}} {seconds:8.1f} s", style)
