"""A language model in this process: transformers' greedy generation, with an optional LoRA adapter.

Source: evaluation specification, "Frozen-arena evaluation of a model" (greedy, thinking disabled, 224 new tokens);
known troubles 18, 20, 24, 28 and 29.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from arena_pipeline.errors import EvaluationError
from arena_pipeline.provenance.hashing import sha256_text
from arena_pipeline.serving.adapters import adapter_sha256, load_adapter
from arena_pipeline.serving.loading import base_sha256, load_base_model, load_tokenizer
from arena_pipeline.serving.requests import Completion, FinishReason, Request

GENERATION_CONFIG: Final = "generation_config.json"
_SMALL_MODEL_BYTES: Final = 256 * 2**20


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
        """Name the model; its weights are loaded for the first batch. ``max_new_tokens`` counts the end of turn.

        Raises ``ConfigError`` for a directory that is no base model, and ``TrainingError`` for one that is no plain
        LoRA adapter; the first batch raises ``TrainingError`` if the adapter does not fit the base model or changes
        nothing.
        """
        self._base_path, self._adapter_path = base_path, adapter_path
        self._dtype, self._device = dtype, device
        self._batch_size, self._max_new_tokens = batch_size, max_new_tokens
        self._tokenizer = load_tokenizer(base_path)
        # Lanes take turns where a fast tokenizer, or the first load of the weights, bears only one thread.
        self._turn = threading.Lock()
        # Merging costs no precision worth naming in float32 and makes a small model a third faster; in bfloat16 it
        # would round the weights that are scored.
        self._merges = dtype == "float32"
        applied = "merged" if self._merges else "unmerged"
        self._identity = {
            "kind": "transformers",
            "base_sha256": base_sha256(base_path),
            "adapter_sha256": None if adapter_path is None else adapter_sha256(adapter_path),
            "adapter_applied": None if adapter_path is None else applied,
            "chat_template_sha256": sha256_text(self._tokenizer.chat_template),
            "backend": {name: version(name) for name in ("transformers", "torch")},
            "dtype": dtype,
            "device": device,
            "batch_size": batch_size,
            "decoding": {"strategy": "greedy", "max_new_tokens": max_new_tokens, "thinking": False},
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the replies, as JSON values."""
        return dict(self._identity)

    @property
    def lanes(self) -> int:
        """On a CPU, as many as threads for a small model, whose operations are too short to be shared; otherwise 1."""
        import torch

        stored = sum(path.stat().st_size for path in self._base_path.glob("*.safetensors"))
        return int(torch.get_num_threads()) if self._device == "cpu" and stored <= _SMALL_MODEL_BYTES else 1

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate one batch's replies; raises ``EvaluationError`` for a batch larger than the identity's size."""
        import torch

        if len(requests) > self._batch_size:
            raise EvaluationError(f"a batch of {len(requests)} requests, but the provider's size is {self._batch_size}")
        with self._turn:
            model = self._model
            encoded = self._tokenizer.apply_chat_template(
                [request.prompt.messages for request in requests],
                tokenize=True,
                add_generation_prompt=True,
                enable_thinking=False,
                padding=True,
                return_dict=True,
                return_tensors="pt",
            ).to(self._device)
        with torch.inference_mode():
            generated = model.generate(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"])
        replies = generated[:, encoded["input_ids"].shape[1] :].tolist()
        prompt_tokens = encoded["attention_mask"].sum(dim=1).tolist()
        with self._turn:
            return [self._completion(reply, length) for reply, length in zip(replies, prompt_tokens, strict=True)]

    @cached_property
    def _ends(self) -> frozenset[int]:
        """The end of turn that training supervises, and whatever else the base model says ends a reply."""
        from transformers import GenerationConfig

        others: list[int] = []
        if (self._base_path / GENERATION_CONFIG).is_file():
            declared = GenerationConfig.from_pretrained(self._base_path, local_files_only=True).eos_token_id
            others = declared if isinstance(declared, list) else [] if declared is None else [declared]
        return frozenset([self._tokenizer.eos_token_id, *others])

    @cached_property
    def _model(self) -> Any:
        from transformers import GenerationConfig

        model = load_base_model(self._base_path, self._dtype, self._device)
        # In place of the base model's own settings, which may sample: transformers fills what is unset from those.
        model.generation_config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=self._max_new_tokens,
            eos_token_id=sorted(self._ends),
            pad_token_id=self._tokenizer.pad_token_id,
        )
        if self._adapter_path is None:
            return model
        return load_adapter(model, self._adapter_path, merge=self._merges)

    def _completion(self, reply: list[int], prompt_tokens: int) -> Completion:
        stop = next((position for position, token in enumerate(reply) if token in self._ends), None)
        tokens = reply if stop is None else reply[:stop]
        text = self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        reason: FinishReason = "length" if stop is None else "stop"
        return Completion(text, reason, prompt_tokens, len(tokens) + (stop is not None))
