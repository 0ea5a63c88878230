"""Turning dataset rows into tokens with proven labels: what the loss sees is the reply and its end of turn, exactly.

Every row is proven before the first training step, because each of these faults trains without complaint and shows only
in the generated text: no supervised token at all, a prompt that is tokenised differently in training and in generation,
a reply that is cut, an end of turn that is never learned, and a template that supervises more than the reply.

Source: evaluation specification, "Frozen-arena evaluation of a model" (lengths) and "Recipe stage1" (assistant-only
loss); known troubles 1, 3, 4, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from arena_pipeline.errors import TrainingError
from arena_pipeline.progress import Progress, silent

MAX_NEW_TOKENS = 224
TRAINING_TEMPLATE_FILE = "chat_template_training.jinja"
_CHUNK = 256


class TrainingRow(Protocol):
    """What encoding reads of a dataset row."""

    @property
    def id(self) -> str: ...

    @property
    def messages(self) -> Sequence[Any]: ...

    @property
    def metadata(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row's tokens up to and including its end of turn, of which those from ``reply_start`` on are supervised."""

    id: str
    phase: str
    input_ids: tuple[int, ...]
    reply_start: int

    @property
    def supervised(self) -> int:
        """How many tokens the loss sees: those of the reply plus the end of turn."""
        return len(self.input_ids) - self.reply_start


def training_template(base_path: Path, tokenizer: Any) -> str:
    """The chat template with generation markers that belongs to a base model.

    It is the base model's own ``chat_template_training.jinja``; without one, the tokenizer's template if it has
    markers, else the training variant that TRL ships for it. Raises ``TrainingError`` for one that TRL does not know.
    """
    file = base_path / TRAINING_TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    from trl.chat_template_utils import get_training_chat_template

    try:
        return get_training_chat_template(tokenizer) or tokenizer.chat_template
    except ValueError as error:
        raise TrainingError(
            f"{base_path}: its chat template has no generation markers and TRL ships no training variant of it"
            f" ({str(error).splitlines()[0]}); add {TRAINING_TEMPLATE_FILE} to the base model"
        ) from None


def encode_rows(
    rows: Sequence[TrainingRow],
    tokenizer: Any,
    template: str,
    *,
    max_length: int,
    max_new_tokens: int = MAX_NEW_TOKENS,
    progress: Progress = silent,
) -> list[EncodedRow]:
    """Tokenise rows with the training template and prove each one; ``max_length`` and ``max_new_tokens`` are in tokens.

    Raises ``TrainingError`` naming the first row that is not as it must be; see ``prove_rows``.
    """
    return list(_encoded(rows, tokenizer, template, max_length, max_new_tokens, progress))


def prove_rows(
    rows: Sequence[TrainingRow],
    tokenizer: Any,
    template: str,
    *,
    max_length: int,
    max_new_tokens: int = MAX_NEW_TOKENS,
    progress: Progress = silent,
) -> None:
    """Prove rows like ``encode_rows``, and keep none of their tokens.

    Raises ``TrainingError`` naming the first row that is longer than ``max_length`` (nothing is ever truncated), whose
    label and end of turn exceed ``max_new_tokens``, whose generation prompt is not a token prefix of the row, or whose
    supervised tokens are not exactly the reply and the end of turn.
    """
    for _ in _encoded(rows, tokenizer, template, max_length, max_new_tokens, progress):
        pass


def _encoded(
    rows: Sequence[TrainingRow],
    tokenizer: Any,
    template: str,
    max_length: int,
    max_new_tokens: int,
    progress: Progress,
) -> Iterator[EncodedRow]:
    end_of_turn = tokenizer.eos_token_id
    if end_of_turn is None or tokenizer.pad_token_id is None or end_of_turn == tokenizer.pad_token_id:
        raise TrainingError(
            f"tokenizer: end of turn is {tokenizer.eos_token!r} and padding is {tokenizer.pad_token!r};"
            " both are needed and they must differ, or padding would teach the model when to stop"
        )
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        whole = tokenizer.apply_chat_template(
            [list(row.messages) for row in chunk],
            chat_template=template,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            enable_thinking=False,
        )
        prompts = tokenizer.apply_chat_template(
            [list(row.messages)[:-1] for row in chunk],
            tokenize=True,
            return_dict=True,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        for row, ids, mask, prompt in zip(
            chunk, whole["input_ids"], whole["assistant_masks"], prompts["input_ids"], strict=True
        ):
            yield _proven(row, list(ids), list(mask), list(prompt), tokenizer, max_length, max_new_tokens)
        progress("tokenising rows", start + len(chunk), len(rows))


def encoding_report(rows: Sequence[EncodedRow]) -> dict[str, Any]:
    """Counts for the training record: rows, tokens (total, mean, longest), supervised tokens and the longest label."""
    lengths = [len(row.input_ids) for row in rows]
    return {
        "rows": len(rows),
        "tokens": sum(lengths),
        "mean_tokens": sum(lengths) / len(rows) if rows else 0.0,
        "longest_tokens": max(lengths, default=0),
        "supervised_tokens": sum(row.supervised for row in rows),
        "longest_label_tokens": max((row.supervised for row in rows), default=0),
    }


def _proven(
    row: TrainingRow,
    ids: list[int],
    mask: list[int],
    prompt: list[int],
    tokenizer: Any,
    max_length: int,
    max_new_tokens: int,
) -> EncodedRow:
    """The row with its labels, after every proof; see ``prove_rows`` for what is refused."""

    def refuse(found: str, advice: str) -> TrainingError:
        return TrainingError(f"row {row.id}: {found}; {advice}")

    reply = row.messages[-1]["content"]
    if row.messages[-1]["role"] != "assistant" or not reply:
        raise refuse("its last message is not an assistant reply", "repair the dataset")
    if len(ids) > max_length:
        raise refuse(
            f"{len(ids)} tokens, more than max_length {max_length}",
            "raise max_length in the experiment; rows are never truncated",
        )
    if not any(mask):
        raise refuse("no supervised token", f"the training chat template must mark replies ({TRAINING_TEMPLATE_FILE})")
    if ids[: len(prompt)] != prompt:
        raise refuse(
            "the generation prompt is not a token prefix of the training text",
            "the inference and the training chat template must render prompts alike",
        )
    begin = tokenizer.bos_token_id
    if begin is not None and ids[:2] == [begin, begin]:
        raise refuse("it begins with two beginning-of-sequence tokens", "repair the chat template")
    start = len(prompt)
    try:
        stop = ids.index(tokenizer.eos_token_id, start) + 1
    except ValueError:
        raise refuse("no end of turn after the reply", "repair the training chat template") from None
    # Stock training templates also mark an empty thinking block before the reply (part of the prompt here) and the line
    # break after the end of turn; neither is supervised. The mark itself must run without a gap over reply and end.
    marked = [position for position, flag in enumerate(mask) if flag]
    if not all(mask[start:stop]):
        raise refuse(
            "the training chat template does not mark the whole reply and its end of turn", "repair its markers"
        )
    if marked[-1] - marked[0] + 1 != len(marked) or tokenizer.decode(ids[stop : marked[-1] + 1]).strip():
        raise refuse("the training chat template marks more than the reply", "repair its markers")
    text = tokenizer.decode(ids[start : stop - 1], skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if text != reply:
        raise refuse(f"its supervised tokens spell {text[:60]!r}, its reply is {reply[:60]!r}", "repair the tokenizer")
    if stop - start > max_new_tokens:
        raise refuse(
            f"its label and end of turn are {stop - start} tokens, more than the {max_new_tokens} that are generated",
            "use a tokenizer that is shorter on this text",
        )
    return EncodedRow(row.id, row.metadata["phase"], tuple(ids[:stop]), start)
