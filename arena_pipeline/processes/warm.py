"""The warm parent: it has imported what tasks import, and forks a fresh process for each of them.

Importing torch, transformers and TRL takes seconds that every task would pay again. Nothing else is shared: a process
runs one task, and before a fork nothing was computed and no GPU touched. The only threads by then are those that
OpenBLAS and jemalloc start when they are loaded, and look after themselves around a fork.

One byte comes from the launcher for each child, with the child's ends of four pipes. Of the two processes that are
forked for it, the *guard* leads a session of its own and the *worker* runs the program in it. The guard tells its
number and how the worker ended, and stays until its group is killed, so that the number cannot come to mean another
group; it kills the group itself when the launcher is gone.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from arena_pipeline.processes.watchdog import watch_parent

DESCRIPTORS: Final = 4
"""The child's ends: what the guard reads its request from, standard output, standard error, and the guard's report."""

PRELOADED: Final = (
    "arena_pipeline.arena._search",
    "arena_pipeline.processes.gpu",
    "arena_pipeline.processes.tasks",
    "arena_pipeline.sft.trainer",
    "dagster_pipes",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
)


def main() -> int:
    """Import the modules ``sys.argv[2:]``, then fork for the launcher at socket ``sys.argv[1]``; 0 when it is gone."""
    launcher = socket.socket(fileno=int(sys.argv[1]))
    preload(sys.argv[2:])
    # Their ends are told by the guards; nobody waits for these.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        _, descriptors, _, _ = socket.recv_fds(launcher, 1, DESCRIPTORS)
        if not descriptors:
            return 0
        if os.fork() == 0:
            launcher.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(_worker(*descriptors))
            return 0
        for descriptor in descriptors:
            os.close(descriptor)


def preload(modules: Sequence[str]) -> None:
    """Import modules once for all children; on macOS, whose libraries do not survive a fork, nothing."""
    if sys.platform == "darwin":
        return
    for module in modules:
        # The task that needs it fails too, and its output says why.
        with suppress(Exception):
            importlib.import_module(module)
    # No collection in a child need look at all of this, nor copy its pages.
    gc.freeze()


def _worker(request: int, output: int, errors: int, report: int) -> dict[str, Any]:
    """In a forked process: become the guard and fork the worker, in which this returns what it is to run."""
    os.setsid()
    for descriptor in (request, output, errors, report):
        os.set_inheritable(descriptor, False)
    os.write(report, b"%d\n" % os.getpid())
    with open(request, "rb", buffering=0, closefd=False) as stream:
        asked = stream.readline()
    if not asked:
        os._exit(0)
    worker = os.fork()
    if worker != 0:
        os.close(output)
        os.close(errors)
        _guard(worker, request, report)
    os.close(request)
    os.close(report)
    for descriptor, standard in ((output, 1), (errors, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    told: dict[str, Any] = json.loads(asked)
    return told


def _guard(worker: int, request: int, report: int) -> NoReturn:
    """Stay until killed: only SIGKILL ends a guard, since without it the launcher would not know how the task ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch_parent(request)
    _, status = os.waitpid(worker, 0)
    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
    while True:
        signal.pause()


def _run(asked: dict[str, Any]) -> None:
    """Run the module that was asked for as ``python -m`` does, with the launcher's folder and variables."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv[1:] = asked["arguments"]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main())
