"""Encoding: the loss sees the reply and its end of turn, on every row, or the row is named and refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import trl

from arena_pipeline.errors import TrainingError
from arena_pipeline.sft.encoding import EncodedRow, encode_rows, encoding_report, training_template
from arena_pipeline_tests.stand_ins import (
    INFERENCE_TEMPLATE,
    TRAINING_TEMPLATE,
    StandInRow,
    stand_in_rows,
    stand_in_tokenizer,
)

TRL_TEMPLATES = Path(trl.__file__).parent / "chat_templates"
NOWHERE = Path("no-such-base-model")


@pytest.fixture(scope="module")
def shared_tokenizer() -> Any:
    return stand_in_tokenizer()


@pytest.fixture
def tokenizer(shared_tokenizer: Any) -> Any:
    return copy.deepcopy(shared_tokenizer)


def encode(
    rows: list[StandInRow], tokenizer: Any, template: str = TRAINING_TEMPLATE, **limits: int
) -> list[EncodedRow]:
    return encode_rows(rows, tokenizer, template, **({"max_length": 512} | limits))


def test_supervised_tokens_are_the_reply_and_its_end_of_turn(tokenizer: Any) -> None:
    rows = stand_in_rows(40)
    encoded = encode(rows, tokenizer)
    assert [row.id for row in encoded] == [row.id for row in rows]
    for row, tokens in zip(rows, encoded, strict=True):
        assert tokens.phase == row.metadata["phase"]
        assert tokens.input_ids[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(tokens.input_ids[tokens.reply_start : -1]) == row.messages[-1]["content"]
        prompt = tokenizer.apply_chat_template(row.messages[:-1], add_generation_prompt=True, tokenize=False)
        assert tokenizer.decode(tokens.input_ids[: tokens.reply_start]) == prompt
    report = encoding_report(encoded)
    assert report["rows"] == 40
    assert report["supervised_tokens"] == sum(len(row.input_ids) - row.reply_start for row in encoded)
    assert report["longest_label_tokens"] == max(row.supervised for row in encoded)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_instruct_2507", "qwen2_5"])
def test_stock_templates_need_their_training_variant(tokenizer: Any, name: str) -> None:
    """Known trouble 3: a stock template marks nothing; TRL's variant also marks a thinking block and a newline."""
    tokenizer.chat_template = (TRL_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    rows = stand_in_rows(6)
    with pytest.raises(TrainingError, match="row row-0: no supervised token"):
        encode(rows, tokenizer, tokenizer.chat_template)
    for row, tokens in zip(rows, encode(rows, tokenizer, training_template(NOWHERE, tokenizer)), strict=True):
        assert tokenizer.decode(tokens.input_ids[tokens.reply_start :]) == row.messages[-1]["content"] + "<|im_end|>"


def test_the_base_models_own_training_template_comes_first(tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "chat_template_training.jinja").write_text(TRAINING_TEMPLATE, encoding="utf-8")
    assert training_template(tmp_path, tokenizer) == TRAINING_TEMPLATE
    with pytest.raises(TrainingError, match="TRL ships no training variant"):
        training_template(NOWHERE, tokenizer)
    tokenizer.chat_template = TRAINING_TEMPLATE
    assert training_template(NOWHERE, tokenizer) == TRAINING_TEMPLATE


def test_a_row_that_is_too_long_is_named_and_never_truncated(tokenizer: Any) -> None:
    """Known trouble 1: a truncated row loses its reply, and its loss is 0."""
    rows = stand_in_rows(5)
    lengths = [len(row.input_ids) + 1 for row in encode(rows, tokenizer)]  # the template adds a line break at the end
    assert len(encode(rows, tokenizer, max_length=max(lengths))) == 5
    longest = lengths.index(max(lengths))
    with pytest.raises(TrainingError, match=f"row row-{longest}: {max(lengths)} tokens, more than max_length"):
        encode(rows, tokenizer, max_length=max(lengths) - 1)


def test_a_label_longer_than_may_be_generated_is_named(tokenizer: Any) -> None:
    rows = stand_in_rows(5)
    labels = [row.supervised for row in encode(rows, tokenizer)]
    assert len(encode(rows, tokenizer, max_new_tokens=max(labels))) == 5
    with pytest.raises(TrainingError, match=r"row row-\d+: its label and end of turn are \d+ tokens, more than the"):
        encode(rows, tokenizer, max_new_tokens=max(labels) - 1)


@pytest.mark.parametrize(
    ("replaced", "by", "message"),
    [
        ("<|im_start|>' + message.role", "<|im_start|> ' + message.role", "not a token prefix"),
        ("{%- generation -%}", "{%- generation -%}{{- 'Sure: ' -}}", "its supervised tokens spell"),
        ("+ '<|im_end|>' -}}{%- endgeneration -%}", "-}}{%- endgeneration -%}<|im_end|>", "whole reply and its end"),
        ("message.content + '<|im_end|>' -}}{%- endgen", "message.content -}}{%- endgen", "no end of turn"),
        ("{%- endgeneration -%}", "{{- '\nAnd more' -}}{%- endgeneration -%}", "marks more than the reply"),
        ("{%- generation -%}{{- message.content", "{{- message.content", "no supervised token"),
    ],
)
def test_a_template_with_a_fault_is_refused_on_its_first_row(
    tokenizer: Any, replaced: str, by: str, message: str
) -> None:
    template = TRAINING_TEMPLATE.replace(replaced, by)
    if "generation -%}" not in by and "generation" in replaced and "endgeneration" not in replaced:
        template = template.replace("{%- endgeneration -%}", "")
    assert template != TRAINING_TEMPLATE
    with pytest.raises(TrainingError, match=f"row row-0: .*{message}"):
        encode(stand_in_rows(3), tokenizer, template)


def test_a_template_that_marks_the_user_message_is_refused(tokenizer: Any) -> None:
    marked = "{%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}"
    template = INFERENCE_TEMPLATE.replace("{{- message.content + '<|im_end|>' -}}", marked)
    with pytest.raises(TrainingError, match="row row-0: the training chat template marks more than the reply"):
        encode(stand_in_rows(3), tokenizer, template)


def test_padding_that_is_the_end_of_turn_is_refused(tokenizer: Any) -> None:
    """Known trouble 7: with one token for both, masking padding masks the end of turn."""
    tokenizer.pad_token = tokenizer.eos_token
    with pytest.raises(TrainingError, match="both are needed and they must differ"):
        encode(stand_in_rows(1), tokenizer)


def test_a_row_without_a_reply_and_a_doubled_beginning_are_refused(tokenizer: Any) -> None:
    rows = stand_in_rows(2)
    rows[1].messages[-1]["content"] = ""
    with pytest.raises(TrainingError, match="row row-1: its last message is not an assistant reply"):
        encode(rows, tokenizer)
    tokenizer.bos_token = "<|im_start|>"
    doubled = "{{- '<|im_start|>' -}}"
    tokenizer.chat_template = doubled + INFERENCE_TEMPLATE
    with pytest.raises(TrainingError, match="two beginning-of-sequence tokens"):
        encode(stand_in_rows(1), tokenizer, doubled + TRAINING_TEMPLATE)
