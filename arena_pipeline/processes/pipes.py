"""Dagster Pipes at both ends of a child process: the one module of this package that knows Dagster, if asked to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CONTEXT_VARIABLE = "DAGSTER_PIPES_CONTEXT"


@contextmanager
def pipes_environment(context: Any) -> Iterator[dict[str, str]]:
    """Variables that connect a child with a Dagster step's log; none where ``context`` is None."""
    if context is None:
        yield {}
        return
    from dagster import PipesTempFileContextInjector, PipesTempFileMessageReader, open_pipes_session

    with open_pipes_session(
        context=context,
        context_injector=PipesTempFileContextInjector(),
        message_reader=PipesTempFileMessageReader(),
    ) as session:
        yield dict(session.get_bootstrap_env_vars())


@contextmanager
def pipes_log() -> Iterator[Callable[[str], None] | None]:
    """In a child: a function that writes to the Dagster step's log; None where no step is connected."""
    if _CONTEXT_VARIABLE not in os.environ:
        yield None
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes.log.info
