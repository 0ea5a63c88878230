"""Launchers for the process tests, to be killed or interrupted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from arena_pipeline.processes import child
from arena_pipeline.processes.launcher import run_task, supervise

CHILDREN = "arena_pipeline_tests.processes.children"


def environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def launch() -> None:
    """Supervise a child that says who it is and never ends; print what it says."""
    child.warm_parent = child.WarmParent(())
    supervise(CHILDREN, ["stay"], environment(), lambda *_: None, lambda line: print(line, flush=True))


def launch_in_a_step() -> None:
    """The same within a Dagster step."""
    from dagster import asset, materialize

    @asset
    def stage() -> None:
        launch()

    materialize([stage])


def launch_task(task: str, payload: Path, work: Path) -> None:
    """Run a task, printing every step of progress."""
    run_task(
        task,
        json.loads(payload.read_text()),
        work,
        progress=lambda label, done, total: print(label, done, total, flush=True),
        log=lambda line: print(line, flush=True),
    )


if __name__ == "__main__":
    if sys.argv[1] == "child":
        launch()
    elif sys.argv[1] == "step":
        launch_in_a_step()
    else:
        launch_task(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
