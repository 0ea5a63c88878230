"""A language model in this process: transformers' greedy generation, with an optional LoRA adapter.

Source: evaluation specification, "Frozen-arena evaluation of a model" (greedy, thinking disabled, 224 new tokens);
known troubles 18, 20, 24, 28 and 29.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from arena_pipeline.errors import EvaluationError
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.serving.adapters import adapter_sha256, load_adapter
from arena_pipeline.serving.loading import base_sha256, load_base_model, load_tokenizer
from arena_pipeline.serving.requests import Completion, FinishReason, Request


class TransformersProvider:
    """Greedy replies of a base model, or of the base model with an adapter.

    A reply may depend on the batch that it was generated in, since floating-point sums are ordered by shape: batches
    are therefore a pure function of the request list, and their size belongs to the identity.
    """

    reads_case = False

    def __init__(
        self,
        base_path: Path,
        adapter_path: Path | None = None,
        *,
        batch_size: int,
        dtype: str = "float32",
        max_new_tokens: int = 224,
        device: str = "cpu",
    ) -> None:
        """Load the model; ``max_new_tokens`` counts the end of turn.

        Raises ``ConfigError`` for a directory that is no base model, and ``TrainingError`` for one that is no plain
        LoRA adapter or whose adapter does not fit the base model or changes nothing.
        """
        self._tokenizer = load_tokenizer(base_path)
        self._model = load_base_model(base_path, dtype, device)
        self._batch_size = batch_size
        self._ends = _end_tokens(self._tokenizer, self._model)
        # In place of the base model's own settings, which may sample: transformers fills what is unset from those.
        self._model.generation_config = _greedy(self._tokenizer, self._ends, max_new_tokens)
        # Merging costs no precision worth naming in float32 and makes a small model a third faster; in bfloat16 it
        # would round the weights that are scored.
        merged = adapter_path is not None and dtype == "float32"
        if adapter_path is not None:
            self._model = load_adapter(self._model, adapter_path, merge=merged)
        self._identity = {
            "kind": "transformers",
            "base_sha256": base_sha256(base_path),
            "adapter_sha256": None if adapter_path is None else adapter_sha256(adapter_path),
            "adapter_applied": None if adapter_path is None else ("merged" if merged else "unmerged"),
            "chat_template_sha256": sha256_text(self._tokenizer.chat_template),
            "backend": {name: version(name) for name in ("transformers", "torch")},
            "attention": self._model.config._attn_implementation,
            "dtype": dtype,
            "device": self._model.device.type,
            "batch_size": batch_size,
            "decoding": {"strategy": "greedy", "max_new_tokens": max_new_tokens, "thinking": False},
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the replies, as JSON values."""
        return dict(self._identity)

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate one batch's replies; raises ``EvaluationError`` for a batch larger than the identity's size."""
        import torch

        if len(requests) > self._batch_size:
            raise EvaluationError(f"a batch of {len(requests)} requests, but the provider's size is {self._batch_size}")
        encoded = self._tokenizer.apply_chat_template(
            [request.prompt.messages for request in requests],
            tokenize=True,
            add_generation_prompt=True,
            enable_thinking=False,
            padding=True,
            return_dict=True,
            return_tensors="pt",
        ).to(self._model.device)
        with torch.inference_mode():
            generated = self._model.generate(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
            )
        replies = generated[:, encoded["input_ids"].shape[1] :].tolist()
        prompt_tokens = encoded["attention_mask"].sum(dim=1).tolist()
        return [self._completion(reply, length) for reply, length in zip(replies, prompt_tokens, strict=True)]

    def _completion(self, reply: list[int], prompt_tokens: int) -> Completion:
        stop = next((position for position, token in enumerate(reply) if token in self._ends), None)
        tokens = reply if stop is None else reply[:stop]
        text = self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        reason: FinishReason = "length" if stop is None else "stop"
        return Completion(text, reason, prompt_tokens, len(tokens) + (stop is not None))


def _greedy(tokenizer: Any, ends: frozenset[int], max_new_tokens: int) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted(ends),
        pad_token_id=tokenizer.pad_token_id,
    )


def _end_tokens(tokenizer: Any, model: Any) -> frozenset[int]:
    """The end of turn that training supervises, and whatever else the base model says ends a reply."""
    declared = model.generation_config.eos_token_id
    others = declared if isinstance(declared, list) else [] if declared is None else [declared]
    return frozenset([tokenizer.eos_token_id, *others])
