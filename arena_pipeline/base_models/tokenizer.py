"""The embedded model's tokenizer: byte-level BPE over the corpus, with Qwen3's chat format.

The pre-tokenizer keeps every id, number and upper-case word a unit, glues JSON punctuation to the key it introduces,
and lets merges cross spaces inside prose of three words or more, so that a system prompt costs tens of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from arena_pipeline.provenance.files import write_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MAXIMUM_VOCABULARY: Final = 4096
PAD, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

_WORD = r"[A-Z]?[a-z_']+"
_PATTERN: Final = "|".join(
    (
        r"(?:system|user|assistant)\n",
        r"[{}\[\],:\"]*\"[a-z_]+\":\[?\"?",  # JSON punctuation up to the next value, key included
        r"V[0-9]{2}",
        r"A[0-9]{1,2}",
        r"(?:blue|red)-[0-9]",
        r"true|false|null",
        rf"(?: ?{_WORD}[,:.]?(?![A-Za-z])){{3,}} ?",  # prose: merges may cross spaces
        r" ?[A-Z]?[a-z_']+",
        r"[A-Z]+",
        r"[0-9]",
        r"[{}\[\],:;.?\"]+",
        r"\s+",
        r".",
    )
)

_CHAT_TEMPLATE: Final = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' -%}
@reply@
{%- else -%}
{{- message.content + '<|im_end|>' -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
INFERENCE_TEMPLATE: Final = _CHAT_TEMPLATE.replace("@reply@", "{{- message.content + '<|im_end|>' -}}")
TRAINING_TEMPLATE: Final = _CHAT_TEMPLATE.replace(
    "@reply@", "{%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}"
)
TRAINING_TEMPLATE_FILE: Final = "chat_template_training.jinja"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer on message contents; ``vocabulary`` bounds its size (at most 4,096)."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocabulary, MAXIMUM_VOCABULARY),
        special_tokens=[PAD, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=IM_END,
        pad_token=PAD,
        chat_template=INFERENCE_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write the tokenizer with both chat templates."""
    tokenizer.save_pretrained(directory)
    write_text(directory / TRAINING_TEMPLATE_FILE, TRAINING_TEMPLATE)
