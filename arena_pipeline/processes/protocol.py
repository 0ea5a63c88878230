"""What a child process tells its launcher: one JSON object a line, on a stream that nothing else can write to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from arena_pipeline import errors
from arena_pipeline.errors import ArenaError
from arena_pipeline.progress import Progress
from arena_pipeline.provenance.hashing import canonical_json

Log = Callable[[str], None]
TASK_FILE: Final = "task.json"
OUTPUT: Final = "output"
"""Directory of what is kept, within the directory of a task or of a stage's work."""


def progress_line(label: str, done: int, total: int) -> str:
    """How far the task is."""
    return canonical_json({"progress": [label, done, total]})


def log_line(text: str) -> str:
    """A line for the log."""
    return canonical_json({"log": text})


def result_line(result: Mapping[str, Any]) -> str:
    """The task's result: it is finished."""
    return canonical_json({"result": result})


def error_line(error: ArenaError) -> str:
    """An error of this project, with the facts that its class keeps."""
    facts = {name: value for name, value in vars(error).items() if isinstance(value, str)}
    return canonical_json({"error": {"type": type(error).__name__, "message": str(error), "facts": facts}})


def raised_error(said: Mapping[str, Any]) -> ArenaError:
    """The error that a child reported, as an object of its class."""
    kind = getattr(errors, said["type"], ArenaError)
    if not (isinstance(kind, type) and issubclass(kind, ArenaError)):
        kind = ArenaError
    error: ArenaError = kind.__new__(kind)
    error.args = (said["message"],)
    vars(error).update(said["facts"])
    return error


def handle(line: bytes, progress: Progress, log: Log) -> dict[str, Any]:
    """Act on one line of a child: report progress or log; return what is neither, the result or the error."""
    message: dict[str, Any] = json.loads(line)
    if "progress" in message:
        progress(*message["progress"])
        return {}
    if "log" in message:
        log(message["log"])
        return {}
    return message
