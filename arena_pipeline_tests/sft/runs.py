"""A small training run on the stand-in base model; also run as a program that kills itself, for tests of resuming."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arena_pipeline.experiments.recipe import Mixture, Recipe
from arena_pipeline.sft.training import train
from arena_pipeline_tests.stand_ins import stand_in_rows

RECIPE = Recipe(
    rank=4,
    alpha=8,
    dropout=0.1,
    target_modules=("q_proj", "v_proj", "down_proj"),
    max_length=128,
    learning_rate=5e-3,
    weight_decay=0.01,
    warmup_steps=1,
    effective_batch_size=6,
    micro_batch_size=2,
    epochs=1,
    max_grad_norm=1.0,
    gradient_checkpointing=False,
    seed=7,
    checkpoints=3,
    precision="float32",
    action_loss_weight=3.0,
    mixture=Mixture(broadcast=0.6, action_common=0.4, action_rare=0.0),
)


def recipe_with(recipe: Recipe = RECIPE, **changes: Any) -> Recipe:
    """The small recipe with changes, allowed ones or not."""
    return recipe.model_copy(update=changes)


TRAIN_ROWS = stand_in_rows(24)
VALIDATION_ROWS = stand_in_rows(9, "validation")
DRAWN = [TRAIN_ROWS[(5 * index + index // 7) % 24].id for index in range(34)]  # six steps, the last of four rows


def small_run(
    work: Path,
    base: Path,
    recipe: Recipe = RECIPE,
    log: Callable[[str], None] = lambda line: None,
    **changes: Any,
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"rows": TRAIN_ROWS, "row_ids": DRAWN, "validation_rows": VALIDATION_ROWS} | changes
    record, _ = train(work, output=work / "output", base_path=base, recipe=recipe, log=log, **arguments)
    return record


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _run_and_die(work: Path, base: Path, where: str) -> None:
    """Die in a step, or while the second checkpoint or the second trainer state is written."""
    from arena_pipeline.sft import trainer, training

    if where in ("step", "between"):
        report = trainer.Guard.on_log
        last = 5
        if where == "between":  # with a state for every step, also for step 3, which keeps no checkpoint
            trainer._SAVE_STATE_EVERY = 1
            last = 4

        def on_log(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
            report(self, args, state, control, **more)
            if state.global_step == last:
                _die()

        trainer.Guard.on_log = on_log
    else:
        module, name = (training, "write_adapter") if where == "checkpoint" else (trainer, "flush_tree")
        original, calls = getattr(module, name), []

        def second_call_dies(*arguments: Any) -> None:
            calls.append(arguments)
            original(*arguments)
            if len(calls) == 2:
                _die()

        setattr(module, name, second_call_dies)
    small_run(work, base)


if __name__ == "__main__":
    _run_and_die(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
