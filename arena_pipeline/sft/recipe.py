"""What a training run reads of an experiment's recipe, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from arena_pipeline.errors import TrainingError


class Recipe(Protocol):
    """The recipe's fields; the experiment file's model has them (evaluation specification, "Recipe stage1")."""

    @property
    def rank(self) -> int: ...
    @property
    def alpha(self) -> float: ...
    @property
    def dropout(self) -> float: ...
    @property
    def target_modules(self) -> Sequence[str]: ...
    @property
    def max_length(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warmup_steps(self) -> int | None: ...
    @property
    def warmup_ratio(self) -> float | None: ...
    @property
    def schedule(self) -> str: ...
    @property
    def effective_batch_size(self) -> int: ...
    @property
    def micro_batch_size(self) -> int: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def gradient_checkpointing(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def checkpoints(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def action_loss_weight(self) -> float: ...


RECIPE_FIELDS = tuple(sorted(name for name in vars(Recipe) if not name.startswith("_")))


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """The fields that decide the weights, as JSON values."""
    values = {name: getattr(recipe, name) for name in RECIPE_FIELDS}
    return values | {"target_modules": sorted(recipe.target_modules)}


def training_steps(recipe: Recipe, draws: int) -> int:
    """Optimizer steps of a run over ``draws`` drawn rows: the recipe's, or as many as the draws fill.

    Raises ``TrainingError`` if the recipe asks for more steps than the draws fill or its batch sizes do not divide.
    """
    if recipe.effective_batch_size % recipe.micro_batch_size:
        raise TrainingError(
            f"effective_batch_size {recipe.effective_batch_size} is not a multiple of"
            f" micro_batch_size {recipe.micro_batch_size}"
        )
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
