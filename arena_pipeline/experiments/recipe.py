"""The training half of an experiment: recipe, mixture and overfit smoke (evaluation spec, "Recipe")."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arena_pipeline.provenance.config_files import Config

Module = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
OVERFIT_ROWS = 256
_SUM_TOLERANCE = 1e-9


class Mixture(Config):
    """Shares of the training draws (dataset spec, "Training mixture"); they add up to 1."""

    broadcast: float = Field(ge=0, le=1)
    """Share of BROADCAST rows."""
    action_common: float = Field(ge=0, le=1)
    """Share of ACT rows with a common action."""
    action_rare: float = Field(ge=0, le=1)
    """Share of ACT rows with a rare action: WAIT, SCAN, TRANSFER."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = self.broadcast + self.action_common + self.action_rare
        if abs(total - 1) > _SUM_TOLERANCE:
            raise ValueError(f"found shares that add up to {total:g}; allowed: 1")
        return self


class Recipe(Config):
    """How the adapter is trained."""

    kind: Literal["lora"] = "lora"
    """What is trained on the frozen base model."""
    rank: int = Field(ge=1, le=512)
    """LoRA rank."""
    alpha: float = Field(gt=0)
    """LoRA alpha: the adapter's output is scaled by alpha / rank."""
    dropout: float = Field(ge=0, lt=1)
    """Dropout before the adapter."""
    target_modules: Annotated[tuple[Module, ...], Field(strict=False, min_length=1)]
    """Linear layers that get an adapter."""
    max_length: int = Field(ge=64, le=2048)
    """Longest row in tokens; a longer one is an error, never cut."""
    learning_rate: float = Field(gt=0, le=1)
    """Peak learning rate."""
    weight_decay: float = Field(ge=0, le=1)
    """AdamW's decoupled weight decay."""
    optimizer: Literal["adamw"] = "adamw"
    """Optimizer."""
    schedule: Literal["cosine"] = "cosine"
    """Learning rate after the warm-up."""
    warmup_steps: int | None = Field(default=None, ge=0)
    """Warm-up in optimizer steps; exactly one of this and warmup_ratio."""
    warmup_ratio: float | None = Field(default=None, ge=0, le=0.5)
    """Warm-up as a share of all steps; exactly one of this and warmup_steps."""
    effective_batch_size: int = Field(ge=1, le=4096)
    """Rows in an optimizer step."""
    micro_batch_size: int = Field(ge=1, le=4096)
    """Rows in a forward pass; divides effective_batch_size."""
    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps; exactly one of this and epochs."""
    epochs: int | None = Field(default=None, ge=1)
    """Times that as many rows are drawn as train has; exactly one of this and steps."""
    max_grad_norm: float = Field(gt=0)
    """Gradients are clipped to this norm."""
    gradient_checkpointing: bool
    """Compute activations twice to hold fewer of them."""
    seed: int = Field(ge=0, lt=2**31)
    """Seed of the adapter's initial weights, dropout and the mixture."""
    checkpoints: int = Field(ge=1, le=1000)
    """Checkpoints, evenly spaced, each scored on validation; 8 or more for a result."""
    precision: Literal["float32", "bfloat16"]
    """Arithmetic of the forward pass; on a CPU, bfloat16 is autocast over float32 weights."""
    action_loss_weight: float = Field(ge=1, le=100)
    """Weight of the reply tokens of ACT rows in the loss; those of BROADCAST rows have 1."""
    mixture: Mixture
    """Shares of the training draws."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for one, other in (("warmup_steps", "warmup_ratio"), ("steps", "epochs")):
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) != 1:
                raise ValueError(f"found {' and '.join(given) or 'neither'}; allowed: exactly one of {one}, {other}")
        if self.effective_batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size: found {self.micro_batch_size}; "
                f"allowed: a divisor of effective_batch_size {self.effective_batch_size}"
            )
        if len(set(self.target_modules)) != len(self.target_modules):
            raise ValueError(f"target_modules: found {', '.join(self.target_modules)}; allowed: each module once")
        if self.steps is not None and self.steps < max(self.checkpoints, (self.warmup_steps or 0) + 1):
            raise ValueError(
                f"steps: found {self.steps}; allowed: more than the {self.warmup_steps or 0} steps of warm-up and at "
                f"least one for each of the {self.checkpoints} checkpoints"
            )
        return self

    def draws(self, train_rows: int) -> int:
        """Rows that the mixture draws for a run over a train split of ``train_rows`` rows."""
        if self.epochs is not None:
            return self.epochs * train_rows
        return (self.steps or 0) * self.effective_batch_size


class Smoke(Config):
    """The overfit smoke: can the recipe learn the overfit set by heart? Its weights are thrown away."""

    steps: int = Field(ge=1)
    """Optimizer steps, of the recipe's batch size."""
    learning_rate: float = Field(gt=0, le=1)
    """Peak learning rate."""
    rows: Literal[32, 64, 128, 256] = 256
    """Rows: the whole overfit set of 256 (for a result), or every (256 / rows)-th row of it."""
    minimum_schema_valid: float = Field(ge=0, le=1)
    """Least share of schema-valid replies on those rows; 0.99 or more for a result."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe of the smoke run: that of the experiment with the smoke's steps and rate, and one checkpoint."""
        return recipe.model_copy(
            update={"steps": self.steps, "epochs": None, "learning_rate": self.learning_rate, "checkpoints": 1}
        )
