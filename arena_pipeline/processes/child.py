"""A child process as its launcher sees it: forked by a warm parent, in a session of its own, and dead when it is left.

Source: design, "Processes"; known trouble 49.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from arena_pipeline.errors import ProcessError
from arena_pipeline.processes.environment import child_environment
from arena_pipeline.processes.warm import PRELOADED

WARM: Final = "arena_pipeline.processes.warm"
_DEATH_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Child:
    """A child's group, what it writes to standard output and error, and its guard's report of how it ended."""

    group: int
    messages: IO[bytes]
    output: IO[bytes]
    report: IO[bytes]

    def kill(self) -> None:
        """Kill its whole group; its number is no other's, since its guard is never waited for while it lives."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)


@contextmanager
def forked(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Child]:
    """A child that runs a module with these variables; all of its group is dead when the block ends, however it does.

    Raises ``ProcessError`` if the warm parent dies before it forks.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        request = _pipe(read=theirs, write=ours)
        streams = [_pipe(read=ours, write=theirs) for _ in range(3)]
        handed = [request[0], *(write for _, write in streams)]
        messages, output, report = (read for read, _ in streams)
        with suppress(BrokenPipeError):
            socket.send_fds(warm_parent.connection(), [b"\0"], [stream.fileno() for stream in handed])
        theirs.close()
        # The first child waits here for the imports.
        group = report.readline()
        if not group:
            raise ProcessError("the process that starts tasks was killed; the same command again starts another")
        child = Child(int(group), messages, output, report)
        try:
            asked = {
                "module": module,
                "arguments": list(arguments),
                "environment": dict(environment),
                "folder": str(Path.cwd()),
            }
            _write(request[1], json.dumps(asked).encode() + b"\n")
            yield child
        finally:
            child.kill()
            # The worker holds the other end of the one, the guard that of the other.
            for stream in (messages, report):
                while select.select([stream], [], [], _DEATH_SECONDS)[0] and stream.read(1 << 16):
                    pass


@dataclass
class WarmParent:
    """The process that forks this one's children: started when it is first needed, and again if it was killed."""

    modules: Sequence[str]
    """What it imports."""
    process: subprocess.Popen[bytes] | None = None
    _socket: socket.socket | None = None

    def connection(self) -> socket.socket:
        """The socket that it listens to. It ends when that is closed, as it is when this process ends, however."""
        if self._socket is None or self.process is None or self.process.poll() is not None:
            self._socket, theirs = socket.socketpair()
            with theirs:
                # Out of the reach of Ctrl-C, which is the launcher's to act on.
                self.process = subprocess.Popen(
                    [sys.executable, "-m", WARM, str(theirs.fileno()), *self.modules],
                    env=child_environment(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        return self._socket


warm_parent = WarmParent(PRELOADED)


def _pipe(*, read: ExitStack, write: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """A pipe, its ends closed with two stacks."""
    ends = os.pipe()
    return read.enter_context(os.fdopen(ends[0], "rb", buffering=0)), write.enter_context(
        os.fdopen(ends[1], "wb", buffering=0)
    )


def _write(stream: IO[bytes], data: bytes) -> None:
    """Write all of it; a child that is gone already is told by its report."""
    with suppress(BrokenPipeError):
        while data:
            data = data[stream.write(data) :]
