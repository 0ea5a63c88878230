"""Who plays in `arena eval`: the oracle, a script, or a model in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arena_pipeline.cli.project import Project
from arena_pipeline.errors import ConfigError

if TYPE_CHECKING:
    from arena_pipeline.experiments import Experiment
    from arena_pipeline.processes.protocol import Log
    from arena_pipeline.serving.requests import Provider

TRANSFORMERS = "transformers"
_SCRIPTED = "scripted:"


@contextmanager
def player(
    name: str,
    project: Project,
    experiment: Experiment,
    model: Path | None,
    adapter: Path | None,
    batch_size: int,
    log: Log,
) -> Iterator[Provider]:
    """The provider of that name, with its device to itself while the block runs; the experiment gives what is None.

    Raises ``ConfigError`` for another name, and for weights given to a script.
    """
    from arena_pipeline.evaluation.scripted_provider import ORACLE, SCRIPT_NAMES, ScriptedProvider

    if name == TRANSFORMERS:
        with _model(project, experiment, model, adapter, batch_size, log) as provider:
            yield provider
        return
    scripts = {ORACLE: ORACLE, **{_SCRIPTED + script: script for script in SCRIPT_NAMES if script != ORACLE}}
    if name not in scripts:
        raise ConfigError(f"--provider {name!r}: allowed are {', '.join(scripts)} and {TRANSFORMERS}")
    for option, value in (("--model", model), ("--adapter", adapter)):
        if value is not None:
            advice = f"leave it out, or use --provider {TRANSFORMERS}"
            raise ConfigError(f"{option} {value}: {name} has no weights; {advice}")
    yield ScriptedProvider(scripts[name])


@contextmanager
def _model(
    project: Project, experiment: Experiment, model: Path | None, adapter: Path | None, batch_size: int, log: Log
) -> Iterator[Provider]:
    from arena_pipeline.processes.environment import child_environment
    from arena_pipeline.processes.gpu import device_lock, resolved_device

    # As in a task's own process: offline, with as many threads. Libraries read this once, when they are loaded.
    os.environ.update(child_environment(os.environ))
    from arena_pipeline.serving.transformers_provider import TransformersProvider

    serving = experiment.serving
    device = resolved_device(serving.device)
    with device_lock(device, log):
        yield TransformersProvider(
            project.root / experiment.base_model.path if model is None else model,
            adapter,
            batch_size=batch_size,
            dtype=serving.dtype,
            max_new_tokens=serving.max_new_tokens,
            device=device,
        )
