"""Runs that Dagster believes to be running although their process is gone (known trouble 46)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from arena_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

_CLOCK_SLACK_SECONDS: Final = 2.0
"""How much later than its first event a process may seem to have started: the kernel counts in hundredths."""


@dataclass(frozen=True)
class DeadRun:
    """A run that was reported as failed, what it was about, and why it is known to be dead."""

    run_id: str
    what: str
    reason: str


def report_dead_runs(instance: DagsterInstance) -> list[DeadRun]:
    """Report every run as failed that has started on this machine and whose process is gone.

    Raises ``ConfigError`` where runs are launched on other machines, whose processes cannot be seen from here.
    """
    from dagster import DagsterRunStatus, RunsFilter
    from dagster._core.launcher import DefaultRunLauncher

    if not isinstance(instance.run_launcher, DefaultRunLauncher):
        launcher = type(instance.run_launcher).__name__
        raise ConfigError(
            f"runs are launched by {launcher}, out of sight of this machine: its run monitoring reaps them"
        )
    unfinished = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    dead = []
    for run in instance.get_runs(RunsFilter(statuses=unfinished)):
        reason = _dead_because(instance, run)
        if reason is not None:
            instance.report_run_failed(run, f"arena reap: {reason}")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            dead.append(DeadRun(run.run_id, _what(run), reason))
    return dead


def _what(run: DagsterRun) -> str:
    return run.tags.get("dagster/partition") or run.job_name


def _dead_because(instance: DagsterInstance, run: DagsterRun) -> str | None:
    """Why a run is dead; None if a process of it is alive, or if it has not named one yet."""
    seen: list[int] = []
    for pid, reported_at in _processes(instance, run):
        seen.append(pid)
        started_at = process_start(pid)
        if started_at is not None and started_at <= reported_at + _CLOCK_SLACK_SECONDS:
            return None
    return f"its process {seen[-1]} is gone" if seen else None


def _processes(instance: DagsterInstance, run: DagsterRun) -> Iterator[tuple[int, float]]:
    """(process, time in seconds since the epoch) of every engine event in which a process of the run names itself."""
    from dagster import DagsterEventType

    for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
        event = entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event is not None else None
        if pid is not None and str(pid.value).isdigit():
            yield int(str(pid.value)), entry.timestamp


def process_start(pid: int) -> float | None:
    """When a process started, in seconds since the epoch; None if there is none.

    A number may be given to another process later, which then started after the run spoke of it. Where the system does
    not tell the time, the number alone counts.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return 0.0
    if fields[0] in "ZX":
        # It has ended; only its parent has not noticed.
        return None
    return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
