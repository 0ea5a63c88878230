"""What follows from a recipe for one run: steps, warm-up, when a checkpoint is kept, micro-batches side by side."""

from __future__ import annotations

import math

from arena_pipeline.errors import TrainingError
from arena_pipeline.experiments.recipe import Recipe


def training_steps(recipe: Recipe, draws: int) -> int:
    """Optimizer steps of a run over ``draws`` drawn rows: the recipe's, or as many as the draws fill.

    Raises ``TrainingError`` if there are no draws, or fewer than the recipe's steps need.
    """
    filled = math.ceil(draws / recipe.effective_batch_size)
    if recipe.steps is not None and recipe.steps > filled:
        raise TrainingError(f"the recipe asks for {recipe.steps} steps, but the {draws} drawn rows fill only {filled}")
    steps = filled if recipe.steps is None else recipe.steps
    if steps < 1:
        raise TrainingError("the run has no step: the mixture is empty")
    return steps


def checkpoint_steps(steps: int, checkpoints: int) -> list[int]:
    """The steps after which a checkpoint is kept, evenly spaced and ending with the last; fewer in a very short run."""
    return sorted({max(1, round(index * steps / checkpoints)) for index in range(1, checkpoints + 1)})


def warmup(recipe: Recipe, steps: int) -> int:
    """Warm-up in steps: the recipe's number, or its share of all steps rounded up."""
    if recipe.warmup_steps is not None:
        return recipe.warmup_steps
    return math.ceil((recipe.warmup_ratio or 0.0) * steps)


def lane_count(recipe: Recipe, device: str, cores: int) -> int:
    """How many micro-batches of a recipe's optimizer step are computed at a time.

    One on an accelerator, which is filled by one; one with dropout, whose random numbers all come from one generator
    and would fall to the micro-batches in a chance order.
    """
    if device != "cpu" or recipe.dropout > 0:
        return 1
    return min(cores, recipe.effective_batch_size // recipe.micro_batch_size)
