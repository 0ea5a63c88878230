"""How the embedded base model is made, as its `build.toml` states it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from arena_pipeline.base_models.corpus.documents import CorpusMixture
from arena_pipeline.errors import ConfigError


@dataclass(frozen=True)
class Architecture:
    """Sizes of the Qwen3 model; embeddings are tied."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_dimension: int
    feed_forward: int
    rope_theta: float


@dataclass(frozen=True)
class Optimisation:
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


@dataclass(frozen=True)
class BaseModelRecipe:
    """The whole of a `build.toml`."""

    vocabulary: int
    tokenizer_seed: int
    tokenizer_documents: int
    prompts: str
    corpus: CorpusMixture
    architecture: Architecture
    optimisation: Optimisation


def load_recipe(path: Path) -> BaseModelRecipe:
    """Read a `build.toml`; ``ConfigError`` names the file and the key that is missing, unknown or of the wrong type."""
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file ({error})") from None
    sections = {"corpus": CorpusMixture, "architecture": Architecture, "optimisation": Optimisation}
    values = {
        name: _section(path, name, kind, body.pop(name, {})) if name in sections else None
        for name, kind in sections.items()
    }
    return _section(path, "", BaseModelRecipe, {**body, **values})


def _section(path: Path, name: str, kind: type[Any], body: dict[str, Any]) -> Any:
    allowed = {field.name: field for field in fields(kind)}
    where = f"{path}: [{name}]" if name else str(path)
    for key in body:
        if key not in allowed:
            raise ConfigError(f"{where}: unknown key {key!r}; allowed are {', '.join(allowed)}")
    try:
        return kind(**body)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
