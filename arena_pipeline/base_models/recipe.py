"""How the embedded base model is made, as its `build.toml` states it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from arena_pipeline.base_models.corpus.documents import CorpusMixture
from arena_pipeline.provenance.config_files import Config, check_config, read_toml


class Architecture(Config):
    """Sizes of the Qwen3 model; embeddings are tied."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_dimension: int
    feed_forward: int
    rope_theta: float


class Optimisation(Config):
    """AdamW with linear warm-up and cosine decay to a tenth, over batches of about ``tokens_per_batch`` tokens.

    ``prompt_weight`` is the loss weight of a token outside the replies; a reply's token weighs 1.
    """

    seed: int
    corpus_seed: int
    documents: int
    steps: int
    tokens_per_batch: int
    learning_rate: float
    weight_decay: float
    warmup_steps: int
    prompt_weight: float


class Phase(Config):
    """One stretch of pre-training on a corpus of its own."""

    corpus: CorpusMixture
    optimisation: Optimisation


class BaseModelRecipe(Config):
    """The whole of a `build.toml`.

    Each phase goes on from the weights of the one before. The model is the last phase's, or, with ``average`` below 1,
    the average of the last two phases' weights in which the last one weighs ``average``.
    """

    vocabulary: int
    tokenizer_seed: int
    tokenizer_documents: int
    prompts: str
    average: float = Field(ge=0, le=1)
    architecture: Architecture
    phases: Annotated[tuple[Phase, ...], Field(strict=False, min_length=1)]


def load_recipe(path: Path) -> BaseModelRecipe:
    """Read a `build.toml`; ``ConfigError`` names the file and each key that is missing, unknown or of a wrong value."""
    return check_config(BaseModelRecipe, read_toml(path), path)
