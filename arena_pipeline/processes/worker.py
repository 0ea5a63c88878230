"""The child process: ``python -m arena_pipeline.processes.worker TASK.json`` runs the task that a file describes.

Started for the launcher (``--supervised``) it reports in the launcher's protocol; started by hand it prints its log and
progress as text and its result as JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from arena_pipeline.errors import ArenaError, ConfigError
from arena_pipeline.processes.environment import child_environment
from arena_pipeline.processes.pipes import pipes_log
from arena_pipeline.processes.protocol import Log, error_line, log_line, progress_line, result_line
from arena_pipeline.provenance.files import read_json
from arena_pipeline.provenance.hashing import canonical_json

_CUT_SHORT: Final = re.compile(r"\..+\.[a-z0-9_]{8}")
"""Names of the temporary files that atomic writes leave when a kill cuts them short."""


class Messages:
    """The stream to the launcher, or to a person's terminal."""

    def __init__(self, supervised: bool) -> None:
        """Claim standard output for messages; whatever else is printed goes to standard error from now on."""
        self._supervised = supervised
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def progress(self, label: str, done: int, total: int) -> None:
        """Report progress."""
        self._say(progress_line(label, done, total) if self._supervised else f"{label}: {done} of {total}")

    def log(self, text: str) -> None:
        """Report a line of log."""
        self._say(log_line(text) if self._supervised else text)

    def result(self, result: dict[str, Any]) -> None:
        """Report the result."""
        self._say(result_line(result) if self._supervised else canonical_json(result))

    def error(self, error: ArenaError) -> None:
        """Report an error of this project."""
        self._say(error_line(error) if self._supervised else f"error: {error}")

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one task file; 0 if it finished, 1 after an error of this project. Any other error is a traceback."""
    parser = argparse.ArgumentParser(prog="python -m arena_pipeline.processes.worker", description="Run one task file.")
    parser.add_argument("task_file", type=Path, help="a task.json as the launcher writes it")
    parser.add_argument("--supervised", action="store_true", help="report to a launcher")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    messages = Messages(options.supervised)
    if not options.supervised:
        os.environ.update(child_environment(os.environ))
    try:
        with pipes_log() as to_step:
            result = _run(options.task_file, messages, to_step or messages.log)
    except ArenaError as error:
        messages.error(error)
        return 1
    messages.result(result)
    return 0


def _run(task_file: Path, messages: Messages, log: Log) -> dict[str, Any]:
    # Here and not above: these load torch, after the environment is set.
    from arena_pipeline.processes.gpu import device_lock, resolved_device
    from arena_pipeline.processes.tasks import Surroundings, asked_device, checked

    content = read_json(task_file)
    if not isinstance(content, dict) or content.keys() != {"task", "payload"}:
        raise ConfigError(f"{task_file}: not a task file; it has the keys task and payload")
    payload, function = checked(content["task"], content["payload"])
    device = resolved_device(asked_device(payload))
    work = task_file.parent
    for path in _leftovers(work):
        path.unlink()
    with device_lock(device, log):
        return function(payload, Surroundings(work, device, messages.progress, log))


def _leftovers(work: Path) -> Iterator[Path]:
    return (path for path in list(work.rglob(".*")) if path.is_file() and _CUT_SHORT.fullmatch(path.name))


if __name__ == "__main__":
    sys.exit(main())
