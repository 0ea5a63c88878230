"""The tasks that run in processes of their own. Each resumes what a killed one left in its directory.

A task gets its checked payload, its directory, the resolved device, and where to report; it returns a JSON object. What
is to be kept of its directory lies below ``output``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.errors import ConfigError, DatasetError
from arena_pipeline.evaluation.runner import evaluate
from arena_pipeline.experiments import Serving
from arena_pipeline.processes.payloads import AdapterInput, EvaluatePayload, ScorePayload, TrainPayload
from arena_pipeline.processes.protocol import OUTPUT, Log
from arena_pipeline.progress import Progress
from arena_pipeline.provenance.config_files import Config, check_config
from arena_pipeline.serving.transformers_provider import TransformersProvider
from arena_pipeline.sft.rows import Row
from arena_pipeline.sft.scoring import score_split
from arena_pipeline.sft.training import train


@dataclass(frozen=True)
class Surroundings:
    """What every task gets beside its payload."""

    work: Path
    device: str
    progress: Progress
    log: Log

    @property
    def output(self) -> Path:
        """The directory of what is to be kept."""
        return self.work / OUTPUT


def train_adapter(payload: TrainPayload, around: Surroundings) -> dict[str, Any]:
    """Train; ``output`` gets ``training.json`` and ``checkpoints/``. Returns the checkpoints and the timings."""
    base = payload.base.verified()
    dataset = payload.dataset.loaded()
    measured = dataset.rows("validation") if payload.measure_validation else ()
    record, timings = train(
        around.work,
        output=around.output,
        base_path=base,
        recipe=payload.recipe,
        rows=dataset.rows("train"),
        row_ids=payload.row_ids,
        validation_rows=measured,
        # Proven to be encodable, and no more: the test split is asked about once, at the end.
        other_rows=(*(() if measured else dataset.rows("validation")), *dataset.rows("test")),
        device=around.device,
        progress=around.progress,
        log=around.log,
    )
    return {"checkpoints": record["checkpoints"], "trainable": record["trainable"]["parameters"], "timings": timings}


def score_rows(payload: ScorePayload, around: Surroundings) -> dict[str, Any]:
    """Score models; ``output/NAME`` gets replies, verdicts and summary. Returns the summaries by model name."""
    base = payload.base.verified()
    rows = _chosen(payload.dataset.loaded().rows(payload.split), payload.row_ids)
    summaries = {}
    for number, model in enumerate(payload.models):

        def progress(_: str, done: int, total: int, before: int = number) -> None:
            around.progress("replies", before * total + done, len(payload.models) * total)

        around.log(f"scoring {model.name} on {len(rows)} rows of {payload.split}")
        summaries[model.name] = score_split(
            around.output / model.name,
            rows,
            _provider(base, model.adapter, payload.serving, around.device),
            step=model.step,
            batch_size=payload.serving.batch_size,
            opened_for_adapter=payload.opened_for_adapter,
            progress=progress,
        )
        # Modules refer to each other in circles: without this, several models could be in memory at once.
        gc.collect()
    return summaries


def evaluate_arena(payload: EvaluatePayload, around: Surroundings) -> dict[str, Any]:
    """Play a manifest; ``output`` gets the evaluation directory. Returns its summary."""
    provider = _provider(payload.base.verified(), payload.adapter, payload.serving, around.device)
    evaluation = evaluate(
        around.output,
        payload.manifest,
        PromptPack(**payload.prompts),
        provider,
        batch_size=payload.serving.batch_size,
        opened_for_adapter=payload.opened_for_adapter,
        progress=around.progress,
    )
    return evaluation.summary


TASKS: Final[Mapping[str, tuple[type[Config], Callable[[Any, Surroundings], dict[str, Any]]]]] = {
    "train": (TrainPayload, train_adapter),
    "score_rows": (ScorePayload, score_rows),
    "evaluate_arena": (EvaluatePayload, evaluate_arena),
}


def checked(task: str, payload: Mapping[str, Any]) -> tuple[Any, Callable[[Any, Surroundings], dict[str, Any]]]:
    """A task's payload as its model, and its function; ``ConfigError`` for an unknown task or a wrong payload."""
    if task not in TASKS:
        raise ConfigError(f"task {task!r}: allowed are {', '.join(TASKS)}")
    model, function = TASKS[task]
    return check_config(model, payload, f"payload of task {task}"), function


def asked_device(payload: TrainPayload | ScorePayload | EvaluatePayload) -> str:
    """The device that a payload asks for: cpu, cuda or auto."""
    return payload.device if isinstance(payload, TrainPayload) else payload.serving.device


def _provider(base: Path, adapter: AdapterInput | None, serving: Serving, device: str) -> TransformersProvider:
    return TransformersProvider(
        base,
        None if adapter is None else adapter.verified(),
        batch_size=serving.batch_size,
        dtype=serving.dtype,
        max_new_tokens=serving.max_new_tokens,
        device=device,
    )


def _chosen(rows: tuple[Row, ...], row_ids: tuple[str, ...] | None) -> list[Row]:
    if row_ids is None:
        return list(rows)
    by_id = {row.id: row for row in rows}
    missing = next((row_id for row_id in row_ids if row_id not in by_id), None)
    if missing is not None:
        raise DatasetError(f"row {missing}: not in the split that was asked for")
    return [by_id[row_id] for row_id in row_ids]
