"""Runs a task in a process of its own: a crash there is an error here, and no process outlives its launcher.

Source: design, "Processes"; known trouble 49.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from arena_pipeline.errors import ProcessError
from arena_pipeline.processes.environment import child_environment
from arena_pipeline.processes.pipes import pipes_environment
from arena_pipeline.processes.protocol import TASK_FILE, Log, handle, raised_error
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.files import write_json

WORKER: Final = "arena_pipeline.processes.worker"
_TAIL_LINES: Final = 40
_DRAIN_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05


def run_task(
    task: str,
    payload: Mapping[str, Any],
    work: Path,
    *,
    progress: Progress = silent,
    log: Log = lambda line: None,
    dagster_context: Any = None,
) -> dict[str, Any]:
    """Run one of ``tasks.TASKS`` in a child process and return its result.

    ``work`` is the task's directory; what is to be kept of it lies below ``work/output``. While the task runs, and
    after one that failed, ``work/task.json`` is there: ``python -m arena_pipeline.processes.worker work/task.json``
    runs the same by hand. ``log`` gets the child's log lines and whatever it writes to its standard streams; in a
    Dagster step (``dagster_context``) its log lines go to the step's log instead.

    An error of this project in the child is raised here as the same class. Raises ``ProcessError`` with the signal's
    name and the end of the child's output if it died otherwise. However this function is left, the child and all that
    it started are dead.
    """
    task_file = work / TASK_FILE
    write_json(task_file, {"task": task, "payload": dict(payload)})
    command = [sys.executable, "-X", "faulthandler", "-m", WORKER, "--supervised", str(task_file)]
    with pipes_environment(dagster_context) as extra:
        ended = supervise(command, child_environment(os.environ, extra), progress, log)
    if "error" in ended.outcome:
        raise raised_error(ended.outcome["error"])
    if ended.returned != 0 or "result" not in ended.outcome:
        raise ProcessError(_death(task, ended))
    task_file.unlink()
    result: dict[str, Any] = ended.outcome["result"]
    return result


@dataclass(frozen=True)
class Ended:
    """How a child ended: the result or error that it reported, its return code, and the end of its other output."""

    outcome: dict[str, Any]
    returned: int
    tail: tuple[str, ...]


def supervise(command: Sequence[str], environment: Mapping[str, str], progress: Progress, log: Log) -> Ended:
    """Start a command in a session of its own, handle its messages to the end, and leave no process of it behind."""
    with _child(command, environment) as child:
        follower = _Follower(child, progress, log)
        returned = follower.follow()
    return Ended(follower.outcome, returned, tuple(follower.tail))


@contextmanager
def _child(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child that leads a session of its own; its whole group is killed when the block ends, in whatever way."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            _kill_group(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the child's group before the child is waited for: until then its number cannot belong to another group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Follower:
    """Reads a child's messages and its other output, and keeps the outcome and the end of the latter."""

    def __init__(self, child: subprocess.Popen[bytes], progress: Progress, log: Log) -> None:
        self.outcome: dict[str, Any] = {}
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._child = child
        self._messages, self._output = _Lines(child.stdout), _Lines(child.stderr)
        self._progress, self._log = progress, log

    def follow(self) -> int:
        """Handle everything until the child's end, kill what it left in its group, and give its return code."""
        with selectors.DefaultSelector() as selector:
            for lines in (self._messages, self._output):
                selector.register(lines.stream, selectors.EVENT_READ, lines)
            while not (self._messages.ended and self._child_ended()):
                for key, _ in selector.select(_POLL_SECONDS if self._messages.ended else None):
                    self._read(key.data)
                    if key.data.ended:
                        selector.unregister(key.fileobj)
        _kill_group(self._child)
        self._drain()
        return self._child.returncode

    def _child_ended(self) -> bool:
        """Whether the child has ended; where the system allows it, without taking its number back already."""
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        return self._child.poll() is not None

    def _drain(self) -> None:
        """Read the last output; not waited for long, since a process that left the group may hold the stream."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._output.stream, selectors.EVENT_READ)
            while not self._output.ended and selector.select(_DRAIN_SECONDS):
                self._read(self._output)

    def _read(self, lines: _Lines) -> None:
        for line in lines.read():
            if lines is self._messages:
                self.outcome.update(handle(line, self._progress, self._log))
            else:
                self.tail.append(line.decode(errors="replace"))
                self._log(self.tail[-1])


class _Lines:
    """Whole lines out of a stream, as they come; the last one may lack its end."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self.stream = stream
        self.ended = False
        self._rest = b""

    def read(self) -> list[bytes]:
        """What has come; sets ``ended`` when nothing more can."""
        data = os.read(self.stream.fileno(), 1 << 16)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self.ended and self._rest:
            lines.append(self._rest)
        return lines


def _death(task: str, ended: Ended) -> str:
    how = f"ended with code {ended.returned} and no result"
    if ended.returned < 0:
        how = f"was killed by {signal.Signals(-ended.returned).name}"
        if -ended.returned == signal.SIGKILL:
            how += " (the kernel does this when memory runs out)"
    return "\n".join([f"task {task}: its process {how}; the last of its output:", *ended.tail])
