"""Where the progress of work goes: to whoever attached, such as a terminal's progress bar, else to the step's log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from arena_pipeline.progress import Progress

LOG_SECONDS = 10.0

_attached: ContextVar[Progress | None] = ContextVar("arena_progress", default=None)


@contextmanager
def attach(progress: Progress) -> Iterator[None]:
    """Have the steps that this process runs while the block lasts report to ``progress``."""
    token = _attached.set(progress)
    try:
        yield
    finally:
        _attached.reset(token)


def reporter(log: logging.Logger) -> Progress:
    """What a step reports to: the attached callable, else lines in ``log``, of one label at most every 10 seconds."""
    attached = _attached.get()
    if attached is not None:
        return attached
    last: dict[str, float] = {}

    def report(label: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - last.get(label, -LOG_SECONDS) >= LOG_SECONDS or done == total:
            last[label] = now
            log.info(f"{label}: {done} of {total}" if total else f"{label}: {done}")

    return report
