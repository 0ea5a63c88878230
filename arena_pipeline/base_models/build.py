"""`arena base-model build`: tokenizer, corpus, pre-training and the model directory, from one `build.toml`."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.base_models.pretraining import new_model, pretrain
from arena_pipeline.base_models.recipe import BaseModelRecipe, load_recipe
from arena_pipeline.base_models.shards import build_corpus, tokenizer_texts
from arena_pipeline.base_models.tokenizer import save_tokenizer, train_tokenizer
from arena_pipeline.errors import ArenaError
from arena_pipeline.progress import Progress
from arena_pipeline.provenance.files import write_json
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.trees import hash_tree

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

RECIPE_FILE: Final = "build.toml"
RECORD_FILE: Final = "build.json"


def build_base_model(
    recipe_path: Path, out: Path, root: Path, device: str, workers: int, progress: Progress
) -> dict[str, Any]:
    """Make the model that ``recipe_path`` describes in the new directory ``out``; returns its record.

    ``root`` is what the recipe's prompt pack path is relative to, ``device`` is ``cpu`` or ``cuda``. Raises
    ``ArenaError`` if ``out`` holds anything.
    The result depends on the recipe, and in its last bits on the device and the library versions.
    """
    recipe = load_recipe(recipe_path)
    if out.exists() and any(out.iterdir()):
        raise ArenaError(f"{out}: not empty; name a new directory, a base model is never overwritten")
    pack = PromptPack.load(root / recipe.prompts)
    started = time.monotonic()
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    progress("tokenizer", 0, 1)
    texts = tokenizer_texts(recipe.tokenizer_seed, recipe.tokenizer_documents, pack, recipe.phases[0].corpus)
    tokenizer = train_tokenizer(texts, recipe.vocabulary)
    save_tokenizer(tokenizer, partial)
    model, figures = _pretrained(recipe, pack, partial, tokenizer, device, workers, progress)
    _save(model, partial)
    shutil.copyfile(recipe_path, partial / RECIPE_FILE)
    record = {**figures, "device": device, "seconds": round(time.monotonic() - started), "versions": _versions()}
    write_json(partial / RECORD_FILE, record)
    os.replace(partial, out)
    return {**record, "sha256": tree_sha256(hash_tree(out))}


def _pretrained(
    recipe: BaseModelRecipe,
    pack: PromptPack,
    directory: Path,
    tokenizer: PreTrainedTokenizerFast,
    device: str,
    workers: int,
    progress: Progress,
) -> tuple[Qwen3ForCausalLM, dict[str, Any]]:
    import torch

    model = new_model(recipe.architecture, tokenizer, recipe.phases[0].optimisation.seed)
    figures = []
    for phase in recipe.phases:
        before = _rounded_weights(model)
        corpus = build_corpus(
            phase.optimisation.documents,
            phase.optimisation.corpus_seed,
            pack,
            phase.corpus,
            directory / "tokenizer.json",
            workers,
            progress,
        )
        log = pretrain(model, corpus, phase.optimisation, device, progress)
        figures.append(
            {"corpus_tokens": len(corpus.tokens), "steps": int(log[-1]["step"]), "final_loss": log[-1]["loss"]}
        )
        after = _rounded_weights(model)
    model.load_state_dict({name: torch.lerp(before[name], after[name], recipe.average) for name in after})
    return model, {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": len(tokenizer),
        "phases": figures,
    }


def _rounded_weights(model: Qwen3ForCausalLM) -> dict[str, torch.Tensor]:
    """Round the weights to what is stored between phases, in place, and return a copy of them."""
    import torch

    model.to(torch.bfloat16).to(torch.float32)
    return {name: weight.detach().to("cpu", copy=True) for name, weight in model.state_dict().items()}


def _save(model: Qwen3ForCausalLM, directory: Path) -> None:
    """Store the weights in bfloat16; they are computed with in float32."""
    import torch

    model.to("cpu").to(torch.bfloat16).save_pretrained(directory, safe_serialization=True)


def _versions() -> dict[str, str]:
    import tokenizers
    import torch
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }
