"""One training run, from rows and a drawn order to evenly spaced LoRA checkpoints and a record of how they came about.

The output directory ends up with ``checkpoints/step-NNNNNN/`` (adapters) and ``training.json`` (what was trained, with
what loss at every step): the same bytes for the same inputs on the same machine. What a clock said is in the work
directory's ``timings.json``. A killed run goes on from the trainer's last whole state and ends with the same bytes.

Source: evaluation specification, "Recipe stage1" and "Order"; dataset specification, "Training mixture"; issue 2,
item 3.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arena_pipeline.errors import TrainingError
from arena_pipeline.experiments.recipe import Recipe
from arena_pipeline.lanes import open_lanes
from arena_pipeline.progress import Progress, silent
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.provenance.hashing import sha256_json, sha256_text
from arena_pipeline.serving.adapters import adapter_sha256, adapter_state, movement, read_adapter, write_adapter
from arena_pipeline.serving.loading import base_sha256, load_base_model, load_tokenizer
from arena_pipeline.sft.collation import training_order
from arena_pipeline.sft.encoding import (
    EncodedRow,
    TrainingRow,
    encode_rows,
    encoding_report,
    prove_rows,
    training_template,
)
from arena_pipeline.sft.recipe import checkpoint_steps, lane_count, training_steps

if TYPE_CHECKING:
    from arena_pipeline.sft.trainer import ArenaTrainer, History

TRAINING_VERSION: Final = "arena-train-v2"
RECORD_FILE: Final = "training.json"
TIMINGS_FILE: Final = "timings.json"
CHECKPOINTS: Final = "checkpoints"
_BINDING_FILE: Final = "run.json"
_STATE: Final = "trainer"
_LOG_EVERY: Final = 10


def checkpoint_name(step: int) -> str:
    """The directory name of a step's checkpoint; names sort like steps."""
    return f"step-{step:06d}"


def train(
    work: Path,
    *,
    output: Path,
    base_path: Path,
    recipe: Recipe,
    rows: Sequence[TrainingRow],
    row_ids: Sequence[str],
    validation_rows: Sequence[TrainingRow],
    other_rows: Sequence[TrainingRow] = (),
    device: str = "cpu",
    progress: Progress = silent,
    log: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train a LoRA adapter on ``rows`` in the order of ``row_ids``.

    Returns the contents of ``output/training.json`` and of ``work/timings.json`` (seconds of each step, the steps after
    which the run was resumed, threads).

    ``row_ids`` is the mixture's drawn list: step k trains on its k-th ``effective_batch_size`` ids. Without
    ``validation_rows`` no validation loss is measured. ``other_rows`` are of the same dataset and neither trained nor
    measured on. Before the first step every row of all three is proven, drawn or not: whether dataset and tokenizer fit
    each other is not found out after training. Raises ``TrainingError`` for a row that fails a proof (see
    ``prove_rows``), for a step whose loss or gradient is not finite or whose gradient is zero, for an adapter that
    does not move, and if ``work`` holds another run.
    """
    tokenizer = load_tokenizer(base_path)
    template = training_template(base_path, tokenizer)
    binding = {
        "training_version": TRAINING_VERSION,
        "base_sha256": base_sha256(base_path),
        "training_template_sha256": sha256_text(template),
        "mixture_sha256": sha256_json(list(row_ids)),
        "validation_sha256": sha256_json([row.id for row in validation_rows]),
        "recipe": recipe.model_dump(mode="json"),
        "device": device,
        "versions": {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")},
    }
    _bind(work, binding)
    if (output / RECORD_FILE).is_file():
        return _finished(work, output)
    steps = training_steps(recipe, len(row_ids))
    drawn = list(row_ids)[: steps * recipe.effective_batch_size]
    wanted = set(drawn)
    limits = {"max_length": recipe.max_length}
    undrawn = [row for row in rows if row.id not in wanted]
    prove_rows([*undrawn, *other_rows], tokenizer, template, progress=progress, **limits)
    encoded = encode_rows([row for row in rows if row.id in wanted], tokenizer, template, progress=progress, **limits)
    validation = encode_rows(validation_rows, tokenizer, template, progress=progress, **limits)
    order = training_order(drawn, {row.id: row for row in encoded}, recipe.effective_batch_size)
    log(
        f"every row proven: {len(encoded)} for training, {len(validation)} for validation, "
        f"{len(undrawn) + len(other_rows)} others; {steps} steps"
    )

    keeper = _Keeper(output / CHECKPOINTS, validation, recipe.micro_batch_size * 2, log)
    run = _Run(work / _STATE, recipe, steps, device, keeper, progress, log)
    history, trainable = run.execute(base_path, tokenizer, order)
    record = binding | {
        "loss": (
            "mean over the supervised tokens of an effective batch, those of ACT replies weighted"
            f" x{recipe.action_loss_weight:g}; validation losses are unweighted means over all tokens"
        ),
        "encoding": {"training": encoding_report(encoded), "validation": encoding_report(validation)},
        "draws": len(drawn),
        "trainable": trainable,
        "steps": history.steps,
        "checkpoints": history.checkpoints,
    }
    timings = {"seconds": history.seconds, "resumed_at": history.resumed_at, "threads": _threads()}
    write_json(work / TIMINGS_FILE, timings)
    write_json(output / RECORD_FILE, record)
    shutil.rmtree(work / _STATE)
    return _finished(work, output)


@dataclass(frozen=True)
class _Run:
    """One run of the trainer, begun anew or taken up from the trainer's last whole state."""

    states: Path
    recipe: Recipe
    steps: int
    device: str
    keeper: _Keeper
    progress: Progress
    log: Callable[[str], None]

    def execute(self, base_path: Path, tokenizer: Any, order: Sequence[EncodedRow]) -> tuple[History, dict[str, Any]]:
        """Train to the end; what was recorded, and the counts and names of the trainable parameters."""
        import torch

        from arena_pipeline.sft.trainer import HISTORY_FILE, Guard, History, build_trainer, resumable_states

        states = resumable_states(self.states)
        history = History(**read_json(states[-1] / HISTORY_FILE)) if states else History()
        if states:
            self.log(f"resuming after step {len(history.steps)} of {self.steps}")
            history.resumed_at.append(len(history.steps))
        # On a CPU the plain attention trains a small model faster than torch's fused kernel, whose backward pass is
        # slow.
        attention = "eager" if self.device == "cpu" else "sdpa"
        model = load_base_model(base_path, _weights_dtype(self.recipe, self.device), self.device, attention)
        kept = checkpoint_steps(self.steps, self.recipe.checkpoints)
        guard = Guard(history, kept, self._reporter(len(history.steps)))
        keep = partial(self.keeper.keep, history)
        with open_lanes(lane_count(self.recipe, self.device, torch.get_num_threads())) as lanes:
            trainer = build_trainer(
                model, tokenizer, order, self.recipe, self.steps, self.states, history, [guard], kept, keep, lanes
            )
            trainable = _trainable(trainer.model)
            self.keeper.start(trainer.model, history)
            trainer.train(resume_from_checkpoint=str(states[-1]) if states else None)
        found = [checkpoint["step"] for checkpoint in history.checkpoints]
        if len(history.steps) != self.steps or found != kept:
            raise TrainingError(
                f"the run ended after {len(history.steps)} of {self.steps} steps, checkpoints at {found}"
            )
        return history, trainable

    def _reporter(self, resumed: int) -> Callable[[History], None]:
        def report(history: History) -> None:
            done = len(history.steps)
            self.progress("training", done, self.steps)
            if done == resumed + 1 or done % _LOG_EVERY == 0 or done == self.steps:
                last, recent = history.steps[-1], history.seconds[-_LOG_EVERY:]
                pace = sum(recent) / len(recent)
                self.log(
                    f"step {done}/{self.steps}: loss {last['loss']:.4f}, gradient norm {last['grad_norm']:.3f},"
                    f" learning rate {last['learning_rate']:.2e}, {pace:.2f} s a step,"
                    f" {pace * (self.steps - done) / 60:.1f} min left"
                )

        return report


def _trainable(model: Any) -> dict[str, Any]:
    """Counts and names of what is trained; ``TrainingError`` if that is not LoRA matrices and nothing else."""
    trainable = {name: value.numel() for name, value in model.named_parameters() if value.requires_grad}
    if not trainable or not all(".lora_A." in name or ".lora_B." in name for name in trainable):
        raise TrainingError(f"trainable parameters are {sorted(trainable)[:4]} ...; only LoRA matrices may be")
    total = sum(value.numel() for value in model.parameters())
    return {"parameters": sum(trainable.values()), "of": total, "names": sorted(trainable)}


class _Keeper:
    """Writes the checkpoints that are kept, each whole or absent, once its adapter is proven finite and moved."""

    def __init__(
        self,
        directory: Path,
        validation: Sequence[EncodedRow],
        batch_size: int,
        log: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._validation = validation
        self._batch_size = batch_size
        self._log = log
        self._before: Mapping[str, Any] = {}

    def start(self, model: Any, history: History) -> None:
        """Take the state that the next checkpoint must have moved from: the last one's, or the fresh adapter's."""
        kept = history.checkpoints
        if kept:
            self._before = read_adapter(self._directory / checkpoint_name(kept[-1]["step"]))
        else:
            self._before = adapter_state(model)

    def keep(self, history: History, trainer: ArenaTrainer) -> None:
        """Measure and write one checkpoint."""
        from arena_pipeline.sft.trainer import validation_loss

        step = int(trainer.state.global_step)
        state = adapter_state(trainer.model)
        moved = movement(self._before, state)
        if moved == 0.0:
            raise TrainingError(
                f"step {step}: the adapter has not moved since the checkpoint before it; a warm-up begins with a step"
                " of learning rate 0, so a very short run needs a warm-up of 0 steps"
            )
        self._before = state
        target = self._directory / checkpoint_name(step)
        partial = self._directory / f".{target.name}"
        for leftover in (partial, target):
            shutil.rmtree(leftover, ignore_errors=True)
        write_adapter(trainer.model, partial)
        partial.replace(target)
        entry: dict[str, Any] = {"step": step, "adapter_sha256": adapter_sha256(target), "moved": moved}
        if self._validation:
            losses = validation_loss(trainer, self._validation, self._batch_size)
            entry |= {"validation_loss": losses.pop("all"), "validation_loss_by_phase": losses}
            self._log(f"step {step}: validation loss {entry['validation_loss']:.4f}")
        history.checkpoints.append(entry)


def _bind(work: Path, binding: Mapping[str, Any]) -> None:
    """Write what this work directory is for, or make sure that it is for this."""
    path = work / _BINDING_FILE
    if not path.is_file():
        write_json(path, binding)
        return
    found = read_json(path)
    different = sorted(key for key in binding.keys() | found.keys() if found.get(key) != binding.get(key))
    if different:
        raise TrainingError(
            f"{path}: another run was begun here ({', '.join(different)} differ); remove {work} to begin anew"
        )


def _finished(work: Path, output: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record and timings of a finished run, after its checkpoints are hashed again."""
    record: dict[str, Any] = read_json(output / RECORD_FILE)
    for checkpoint in record["checkpoints"]:
        directory = output / CHECKPOINTS / checkpoint_name(checkpoint["step"])
        if adapter_sha256(directory) != checkpoint["adapter_sha256"]:
            raise TrainingError(f"{directory}: changed after it was trained; remove {work} to train again")
    return record, read_json(work / TIMINGS_FILE)


def _weights_dtype(recipe: Recipe, device: str) -> str:
    """On a CPU bfloat16 is autocast over float32 weights; on an accelerator the frozen weights are bfloat16 too."""
    return recipe.precision if device != "cpu" else "float32"


def _threads() -> int:
    import torch

    return int(torch.get_num_threads())
