"""Programs for the process tests: children that end in some way, and a launcher to be killed or interrupted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from arena_pipeline.processes.launcher import run_task, supervise

HEAD = """
import ctypes, os, signal, subprocess, sys, time
from arena_pipeline.processes.worker import Messages
from arena_pipeline.processes.watchdog import watch_parent
messages = Messages(supervised=True)
watch_parent()
"""

GRANDCHILD = (
    HEAD
    + """
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
messages.log(f"started {os.getpid()} {child.pid}")
"""
)


def environment() -> dict[str, str]:
    return dict(os.environ) | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}


def launch(program: str) -> None:
    """Supervise a child that says who it is and never ends; print what it says."""
    command = [sys.executable, "-c", program]
    supervise(command, environment(), lambda *_: None, lambda line: print(line, flush=True))


def launch_in_a_step() -> None:
    """The same within a Dagster step."""
    from dagster import asset, materialize

    @asset
    def stage() -> None:
        launch(GRANDCHILD + "time.sleep(600)")

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
        launch(GRANDCHILD + "time.sleep(600)")
    elif sys.argv[1] == "step":
        launch_in_a_step()
    else:
        launch_task(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
