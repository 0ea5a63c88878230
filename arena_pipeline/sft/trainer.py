"""TRL's SFTTrainer held to this project's rules: proven labels, the mixture's order, guarded steps, whole checkpoints.

Imported by the training process alone: it loads torch, transformers and TRL.

Source: evaluation specification, "Recipe stage1"; known troubles 1, 9, 10, 13, 15 and 16.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import PrinterCallback, Trainer, TrainerCallback
from trl import SFTConfig, SFTTrainer

from arena_pipeline.errors import TrainingError
from arena_pipeline.experiments.recipe import Recipe
from arena_pipeline.lanes import Lanes
from arena_pipeline.provenance.files import write_json
from arena_pipeline.provenance.trees import flush_tree
from arena_pipeline.serving.adapters import write_adapter
from arena_pipeline.sft.collation import collate, in_batches, reply_losses
from arena_pipeline.sft.encoding import EncodedRow
from arena_pipeline.sft.recipe import warmup

HISTORY_FILE = "history.json"
_PARTIAL = ".partial"
_RETURN_MEMORY_EVERY = 100
_SAVE_STATE_EVERY = 20


@dataclass
class History:
    """What a run has recorded so far; saved with every checkpoint and taken up again from there."""

    steps: list[dict[str, float]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)


class ArenaTrainer(SFTTrainer):
    """SFTTrainer whose loss is a weighted mean over the supervised tokens of a whole effective batch.

    One number leaves each optimizer step: sum(weight x negative log-likelihood) / sum(weight), over all micro-batches.
    What the data loader gives is a whole step, as ``micro_batches``; lanes compute them.
    """

    def __init__(
        self,
        *arguments: Any,
        history: History,
        kept_steps: Sequence[int],
        checkpoint: Callable[[ArenaTrainer], None],
        lanes: Lanes,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.history = history
        self.kept_steps = frozenset(kept_steps)
        self.checkpoint = checkpoint
        self.lanes = lanes

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        (step,) = batch_samples
        return sum(batch["loss_weights"][:, 1:].sum() for batch in step["micro_batches"]).to(device)

    def training_step(
        self, model: Any, inputs: Mapping[str, Any], num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The loss of a whole step; its gradients are added up in the order of the micro-batches."""
        model.train()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

        def differentiate(batch: Mapping[str, Any]) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
            with self.compute_loss_context_manager():
                loss = self.compute_loss(model, batch, num_items_in_batch=num_items_in_batch)
            return loss.detach(), torch.autograd.grad(loss, parameters)

        total = torch.zeros((), device=self.args.device)
        for loss, gradients in self.lanes(differentiate, self._prepare_inputs(inputs)["micro_batches"]):
            total += loss
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        return total

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> torch.Tensor:
        losses, weights = reply_losses(model, inputs)
        return (losses * weights).sum() / num_items_in_batch

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The kept checkpoint first, if this step has one, then the trainer's own state, whole or absent."""
        if self.state.global_step in self.kept_steps:
            self.checkpoint(self)
        parent = Path(self.args.output_dir)
        partial_directory = parent / _PARTIAL
        shutil.rmtree(partial_directory, ignore_errors=True)
        self.args.output_dir = str(partial_directory)
        try:
            # Past TRL's own version of this method, which would add a model card.
            Trainer._save_checkpoint(self, model, trial)
        finally:
            self.args.output_dir = str(parent)
        name = f"checkpoint-{self.state.global_step}"
        write_json(partial_directory / name / HISTORY_FILE, vars(self.history))
        flush_tree(partial_directory)
        earlier = resumable_states(parent)
        os.replace(partial_directory / name, parent / name)
        for directory in earlier:
            shutil.rmtree(directory)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Only the adapter: no tokenizer and no pickled arguments."""
        write_adapter(self.model, Path(output_dir or self.args.output_dir))


class Guard(TrainerCallback):
    """Records every optimizer step, says when to save, and stops the run at the first step that cannot be right."""

    def __init__(self, history: History, kept_steps: Sequence[int], report: Callable[[History], None]) -> None:
        self._history = history
        self._kept_steps = frozenset(kept_steps)
        self._report = report
        self._began = 0.0
        self._moved = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._history.seconds.append(time.perf_counter() - self._began)
        # More often than checkpoints are kept: what an interrupted run loses are the steps since the last state.
        control.should_save = state.global_step in self._kept_steps or state.global_step % _SAVE_STATE_EVERY == 0
        if state.global_step % _RETURN_MEMORY_EVERY == 0:
            _return_memory()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, model: Any = None, **_: Any) -> None:
        if "grad_norm" not in logs:  # the summary at the end of a run
            return
        step = state.global_step
        record = {name: float(logs[name]) for name in ("loss", "grad_norm", "learning_rate")}
        if not all(math.isfinite(value) for value in record.values()):
            raise TrainingError(f"step {step}: {json.dumps(record)} is not finite; lower the learning rate")
        if record["grad_norm"] == 0.0:
            raise TrainingError(f"step {step}: the gradient is zero, so nothing is trained; the adapter may be frozen")
        if not self._moved and record["learning_rate"] > 0:
            # B starts at zero: if no B has left it after a step with a learning rate, the adapter is not trained.
            norm = sum(float(value.detach().norm()) for name, value in model.named_parameters() if ".lora_B." in name)
            if norm == 0.0:
                raise TrainingError(f"step {step}: no LoRA B matrix has moved; the adapter is frozen")
            self._moved = True
        self._history.steps.append({"step": step, **record})
        self._report(self._history)


def _return_memory() -> None:
    """Give freed memory back to the system, where the C library can be asked to.

    Batches differ in length, so what one step frees seldom fits the next, and the C library keeps it: after a few
    hundred steps a process would hold several times what it uses.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def resumable_states(directory: Path) -> list[Path]:
    """The trainer's whole states below a directory, earliest first."""
    found = [path for path in directory.glob("checkpoint-*") if (path / HISTORY_FILE).is_file()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def build_trainer(
    model: Any,
    tokenizer: Any,
    order: Sequence[EncodedRow],
    recipe: Recipe,
    steps: int,
    state_directory: Path,
    history: History,
    callbacks: Sequence[TrainerCallback],
    kept_steps: Sequence[int],
    checkpoint: Callable[[ArenaTrainer], None],
    lanes: Lanes = map,
) -> ArenaTrainer:
    """A trainer for one pass over ``order``, with a fresh LoRA adapter on ``model``.

    ``checkpoint`` is called at each of ``kept_steps``, before the trainer's own state is saved.
    """
    device = model.device.type
    arguments = SFTConfig(
        output_dir=str(state_directory),
        max_length=recipe.max_length,
        # Of its own accord the trainer would run micro-batches one after the other.
        per_device_train_batch_size=recipe.effective_batch_size,
        gradient_accumulation_steps=1,
        num_train_epochs=1,
        max_steps=steps,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        lr_scheduler_type=recipe.schedule,
        warmup_steps=warmup(recipe, steps),
        max_grad_norm=recipe.max_grad_norm,
        optim="adamw_torch",
        bf16=recipe.precision == "bfloat16",
        fp16=False,
        use_cpu=device == "cpu",
        gradient_checkpointing=recipe.gradient_checkpointing,
        seed=recipe.seed,
        data_seed=recipe.seed,
        packing=False,
        train_sampling_strategy="sequential",
        shuffle_dataset=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        dataloader_num_workers=0,
        dataloader_pin_memory=device != "cpu",
        eval_strategy="no",
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    lora = LoraConfig(
        r=recipe.rank,
        lora_alpha=int(recipe.alpha) if recipe.alpha == int(recipe.alpha) else recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=list(recipe.target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )
    weights = {"ACT": recipe.action_loss_weight, "BROADCAST": 1.0}

    def collate_step(items: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        rows = [order[item["position"]] for item in items]
        return {
            "micro_batches": [
                collate(micro_batch, tokenizer.pad_token_id, weights)
                for micro_batch in in_batches(rows, recipe.micro_batch_size)
            ]
        }

    trainer = ArenaTrainer(
        model=model,
        args=arguments,
        # The trainer draws positions, in order; the collator turns them into the proven rows.
        train_dataset=Dataset.from_dict({"position": list(range(len(order)))}),
        processing_class=tokenizer,
        data_collator=collate_step,
        peft_config=lora,
        callbacks=list(callbacks),
        history=history,
        kept_steps=kept_steps,
        checkpoint=checkpoint,
        lanes=lanes,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def validation_loss(trainer: ArenaTrainer, rows: Sequence[EncodedRow], batch_size: int) -> dict[str, float]:
    """Mean negative log-likelihood over all supervised tokens of a split, unweighted: ``all``, and of each phase."""
    totals: dict[str, tuple[float, int]] = {}
    ordered = sorted(rows, key=lambda row: (row.phase, len(row.input_ids), row.id))
    model, weights = trainer.model, {row.phase: 1.0 for row in ordered}
    pad = trainer.processing_class.pad_token_id

    def measure(batch_rows: Sequence[EncodedRow]) -> tuple[float, int]:
        batch = trainer._prepare_inputs(collate(batch_rows, pad, weights))
        with torch.no_grad(), trainer.compute_loss_context_manager():
            losses, _ = reply_losses(model, batch)
        return float(losses.double().sum()), losses.numel()

    training = model.training
    model.eval()
    try:
        for phase in weights:
            members = [row for row in ordered if row.phase == phase]
            loss, tokens = 0.0, 0
            for batch_loss, batch_tokens in trainer.lanes(measure, in_batches(members, batch_size)):
                loss, tokens = loss + batch_loss, tokens + batch_tokens
            totals[phase] = (loss, tokens)
    finally:
        model.train(training)
    everything = sum(loss for loss, _ in totals.values()) / sum(tokens for _, tokens in totals.values())
    return {"all": everything} | {phase: loss / tokens for phase, (loss, tokens) in totals.items()}
