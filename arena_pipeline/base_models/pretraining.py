"""Pre-training: a Qwen3 model from random weights on the generated corpus, by plain next-token prediction."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from arena_pipeline.base_models.recipe import Architecture, Optimisation
from arena_pipeline.base_models.shards import Corpus
from arena_pipeline.progress import Progress

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

_LAST_RATE_SHARE: Final = 0.1
_CONTEXT: Final = 2048


def new_model(architecture: Architecture, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """A randomly initialised model that fits the tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden,
        intermediate_size=architecture.feed_forward,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.key_value_heads,
        head_dim=architecture.head_dimension,
        max_position_embeddings=_CONTEXT,
        rope_theta=architecture.rope_theta,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def pretrain(
    model: Qwen3ForCausalLM, corpus: Corpus, optimisation: Optimisation, device: str, progress: Progress
) -> list[dict[str, float]]:
    """Train in place for ``steps`` batches, reshuffling the corpus when it runs out; returns a record each hundred."""
    import torch

    model.to(device).train()
    weighted_loss: Callable[..., torch.Tensor] = _weighted_loss
    if device == "cuda":
        # Layer by layer, so that all layers share one compilation; the attention mask stays outside of it.
        for layer in model.model.layers:
            layer.compile(dynamic=True)
        weighted_loss = torch.compile(_weighted_loss, dynamic=True)
    texts = _DeviceCorpus(corpus, model.config.pad_token_id, device)
    batches: list[Any] = []
    for shuffle in itertools.count(optimisation.seed):
        if len(batches) >= optimisation.steps:
            break
        batches += corpus.batches(optimisation.tokens_per_batch, shuffle)
    del batches[optimisation.steps :]
    optimizer = torch.optim.AdamW(
        _parameter_groups(model, optimisation.weight_decay),
        lr=optimisation.learning_rate,
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    log: list[dict[str, float]] = []
    started = time.monotonic()
    for step, batch in enumerate(batches):
        rate = _rate(step, len(batches), optimisation)
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, weights = texts.batch(batch, optimisation.prompt_weight)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = weighted_loss(logits, ids[:, 1:], weights[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 100 == 0 or step + 1 == len(batches):
            log.append({"step": step + 1, "loss": loss.item(), "seconds": time.monotonic() - started})
            progress(f"pre-training, loss {log[-1]['loss']:.4f}", step + 1, len(batches))
    model.eval()
    return log


class _DeviceCorpus:
    """The corpus beside the model, so that a batch is put together where it is needed and no step waits for a copy."""

    def __init__(self, corpus: Corpus, pad: int, device: str) -> None:
        import torch

        self._corpus, self._pad, self._device = corpus, pad, device
        # torch indexes no uint16; a vocabulary fits int16 as well.
        self._tokens = torch.from_numpy(corpus.tokens.astype(np.int16)).to(device)
        self._replies = torch.from_numpy(corpus.replies).to(device)

    def batch(self, documents: NDArray[np.int64], prompt_weight: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and loss weights of shape (documents, longest), padded on the right with weight 0.

        Padding on the right needs no attention mask: attention is causal.
        """
        import torch

        lengths = self._corpus.lengths[documents]
        bounds = torch.from_numpy(np.stack([self._corpus.starts[documents], lengths])).to(self._device)
        column = torch.arange(int(lengths.max()), device=self._device)
        present = column < bounds[1, :, None]
        positions = torch.where(present, bounds[0, :, None] + column, 0)
        ids = torch.where(present, self._tokens[positions].long(), self._pad)
        return ids, torch.where(self._replies[positions], 1.0, prompt_weight) * present


def _weighted_loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted mean cross-entropy."""
    import torch

    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


def _parameter_groups(model: Qwen3ForCausalLM, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; norms and embeddings do not."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _rate(step: int, steps: int, optimisation: Optimisation) -> float:
    warm = min(1.0, (step + 1) / optimisation.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
    return optimisation.learning_rate * warm * (_LAST_RATE_SHARE + (1 - _LAST_RATE_SHARE) * cosine)
