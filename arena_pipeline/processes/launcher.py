"""Runs a task in a process of its own: a crash there is an error here, and no process outlives its launcher.

Source: design, "Processes"; known trouble 49.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from arena_pipeline.errors import ProcessError
from arena_pipeline.processes.child import Child, forked
from arena_pipeline.processes.environment import child_environment
from arena_pipeline.processes.pipes import pipes_environment
from arena_pipeline.processes.protocol import TASK_FILE, Log, handle, raised_error
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.files import write_json

WORKER: Final = "arena_pipeline.processes.worker"
_TAIL_LINES: Final = 40
_DRAIN_SECONDS: Final = 5.0


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
    with pipes_environment(dagster_context) as extra:
        environment = child_environment(os.environ, extra)
        ended = supervise(WORKER, ["--supervised", str(task_file)], environment, progress, log)
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


def supervise(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], progress: Progress, log: Log
) -> Ended:
    """Run a module in a child, handle its messages to the end, and leave no process of it behind."""
    with forked(module, arguments, environment) as child:
        follower = _Follower(child, progress, log)
        returned = follower.follow()
    return Ended(follower.outcome, returned, tuple(follower.tail))


class _Follower:
    """Reads a child's messages and its other output, and keeps the outcome and the end of the latter."""

    def __init__(self, child: Child, progress: Progress, log: Log) -> None:
        self.outcome: dict[str, Any] = {}
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._child = child
        self._messages, self._output, self._report = map(_Lines, (child.messages, child.output, child.report))
        # Only SIGKILL ends a guard before it has told otherwise.
        self._returned = -int(signal.SIGKILL)
        self._progress, self._log = progress, log

    def follow(self) -> int:
        """Handle everything until the child's end, kill what it left in its group, and give its return code."""
        with selectors.DefaultSelector() as selector:
            for lines in (self._messages, self._output, self._report):
                selector.register(lines.stream, selectors.EVENT_READ, lines)
            while not self._report.begun:
                self._read_what_came(selector, None)
            self._child.kill()
            # Not waited for long: a process that left the group may hold a stream open.
            while selector.get_map() and self._read_what_came(selector, _DRAIN_SECONDS):
                pass
        return self._returned

    def _read_what_came(self, selector: selectors.BaseSelector, seconds: float | None) -> bool:
        ready = selector.select(seconds)
        for key, _ in ready:
            self._read(key.data)
            if key.data.ended:
                selector.unregister(key.fileobj)
        return bool(ready)

    def _read(self, lines: _Lines) -> None:
        for line in lines.read():
            if lines is self._report:
                self._returned = int(line)
            elif lines is self._messages:
                self.outcome.update(handle(line, self._progress, self._log))
            else:
                self.tail.append(line.decode(errors="replace"))
                self._log(self.tail[-1])


class _Lines:
    """Whole lines out of a stream, as they come; the last one may lack its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.begun, self.ended = False, False
        self._rest = b""

    def read(self) -> list[bytes]:
        """What has come; sets ``begun``, and ``ended`` when nothing more can."""
        data = os.read(self.stream.fileno(), 1 << 16)
        self.begun, self.ended = True, not data
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
