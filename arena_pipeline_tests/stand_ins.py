"""A throw-away base model for tests of the engine: Qwen3 architecture, random weights, a tokenizer of 300 tokens.

It stands in for the shipped base model where a test is about mechanics (masks, resuming, processes) and not about what
a model can do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena_pipeline.provenance.files import write_text

CHAT_TEMPLATE = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\n' -}}"
    "@content@{{- '\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
INFERENCE_TEMPLATE = CHAT_TEMPLATE.replace("@content@", "{{- message.content + '<|im_end|>' -}}")
TRAINING_TEMPLATE = CHAT_TEMPLATE.replace(
    "@content@",
    "{%- if message.role == 'assistant' -%}"
    "{%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}"
    "{%- else -%}{{- message.content + '<|im_end|>' -}}{%- endif -%}",
)


class StandInRow:
    """A dataset row in the shape the engine reads."""

    def __init__(self, row_id: str, phase: str, system: str, user: str, reply: str) -> None:
        self.id = row_id
        self.metadata = {"phase": phase}
        self.messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
            {"role": "assistant", "content": reply},
        ]


def stand_in_rows(number: int, name: str = "row") -> list[StandInRow]:
    """Rows of varying length of both phases; the reply names a node that the user message shows."""
    rows = []
    for index in range(number):
        node, phase = f"V{10 + index % 7}", "ACT" if index % 3 == 0 else "BROADCAST"
        user = json.dumps({"phase": phase, "node": node, "turns": list(range(index % 5))}, sort_keys=True)
        reply = f'{{"action_id":"A{index % 7}"}}' if phase == "ACT" else json.dumps({"facts": [{"node": node}]})
        rows.append(StandInRow(f"{name}-{index}", phase, "You are one of four agents. JSON only.", user, reply))
    return rows


def stand_in_tokenizer(learned_from: Sequence[str] = (), size: int = 300) -> Any:
    """A byte-level BPE tokenizer with Qwen3's special tokens, whose padding differs from its end of turn.

    It has learned the texts of the stand-in rows, or those of ``learned_from``.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [message["content"] for row in stand_in_rows(30) for message in row.messages]
    tokenizer.train_from_iterator(learned_from or texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=INFERENCE_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def write_stand_in_base(directory: Path, *, seed: int = 0, tokenizer: Any = None) -> Path:
    """Write the stand-in base model (two layers of width 32, bf16 safetensors) and return its directory."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tokenizer or stand_in_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # Random weights of the usual size answer every prompt alike; larger ones make replies follow the prompt.
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    write_text(directory / "chat_template_training.jinja", TRAINING_TEMPLATE)
    return directory
