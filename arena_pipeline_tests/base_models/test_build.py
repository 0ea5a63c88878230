"""Tokenizer, recipe file and the whole builder, on a model of two layers that is trained for a few steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.base_models.build import build_base_model
from arena_pipeline.base_models.corpus.documents import CorpusMixture, documents
from arena_pipeline.base_models.recipe import load_recipe
from arena_pipeline.base_models.shards import build_corpus, encode_document
from arena_pipeline.base_models.tokenizer import MAXIMUM_VOCABULARY, TRAINING_TEMPLATE
from arena_pipeline.errors import ArenaError, ConfigError
from arena_pipeline.progress import silent
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.serving.loading import load_tokenizer

ROOT = Path(__file__).parents[2]
PACK = PromptPack.load(ROOT / "data" / "prompts" / "arena-v2-open.toml")
SHIPPED = ROOT / "data" / "base_models" / "arena-tiny"
MIXTURE = CorpusMixture(
    questions=0.35, stated_broadcast=0.25, stated_action=0.25, free_broadcast=0.075, free_action=0.075
)

TINY_PHASE = """
[[phases]]
[phases.corpus]
questions = 0.35
stated_broadcast = 0.25
stated_action = 0.25
free_broadcast = 0.075
free_action = 0.075

[phases.optimisation]
seed = 1
corpus_seed = 1
documents = 64
steps = 3
tokens_per_batch = 4096
learning_rate = 1e-3
weight_decay = 0.1
warmup_steps = 2
prompt_weight = 0.1
"""
TINY_RECIPE = f"""
vocabulary = 4096
tokenizer_seed = 1
tokenizer_documents = 300
prompts = "data/prompts/arena-v2-open.toml"
average = 0.5

[architecture]
layers = 2
hidden = 32
heads = 2
key_value_heads = 1
head_dimension = 16
feed_forward = 64
rope_theta = 10000.0
{TINY_PHASE}{TINY_PHASE}"""


def test_a_build_can_be_repeated_to_the_byte(tmp_path: Path) -> None:
    recipe = tmp_path / "build.toml"
    recipe.write_text(TINY_RECIPE, encoding="utf-8")
    records = [build_base_model(recipe, tmp_path / name, ROOT, "cpu", 1, silent) for name in ("a", "b")]
    first, second = (hash_tree(tmp_path / name) for name in ("a", "b"))
    assert {k: v for k, v in first.items() if k != "build.json"} == {
        k: v for k, v in second.items() if k != "build.json"
    }
    assert set(first) >= {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "build.toml"}
    assert records[0]["vocabulary"] <= MAXIMUM_VOCABULARY
    with pytest.raises(ArenaError, match="not empty"):
        build_base_model(recipe, tmp_path / "a", ROOT, "cpu", 1, silent)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("layers = 2", "layer = 2", "layer"),
        ("vocabulary = 4096", "", "vocabulary"),
        ("[phases.corpus]", "[phases.corpse]", "corpse"),
        ("seed = 1", "seed = ", "TOML"),
        ("average = 0.5", 'average = "half"', "average"),
        ("average = 0.5", "average = 1.5", "average"),
    ],
)
def test_a_recipe_that_is_wrong_is_refused_by_key(tmp_path: Path, old: str, new: str, named: str) -> None:
    recipe = tmp_path / "build.toml"
    recipe.write_text(TINY_RECIPE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=named):
        load_recipe(recipe)


def test_the_corpus_does_not_depend_on_the_number_of_workers() -> None:
    def corpus(workers: int) -> list[int]:
        tokenizer_file = SHIPPED / "tokenizer.json"
        return build_corpus(40, 5, PACK, MIXTURE, tokenizer_file, workers, silent).tokens.tolist()

    assert corpus(1) == corpus(2)


def test_documents_are_encoded_as_the_chat_template_writes_them() -> None:
    tokenizer = load_tokenizer(SHIPPED)
    for messages in documents(21, 60, PACK, MIXTURE):
        turns = [{"role": role, "content": content} for role, content in messages]
        ids, replies = encode_document(tokenizer.backend_tokenizer, messages)
        written = tokenizer.apply_chat_template(
            turns, chat_template=TRAINING_TEMPLATE, return_dict=True, return_assistant_tokens_mask=True
        )
        assert written["input_ids"] == ids
        assert written["assistant_masks"] == [int(reply) for reply in replies]
        assert tokenizer.apply_chat_template(turns, return_dict=True)["input_ids"] == ids
        assert tokenizer.decode(ids) == "".join(
            f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages
        )


def test_any_text_survives_the_tokenizer() -> None:
    tokenizer = load_tokenizer(SHIPPED)
    for text in (
        "",
        "Zürich 寿司 \U0001f6f0",
        "a\tb\r\n\n  c",
        '{"x":"<|im_end"}',
        "ſCAN Ａ1 \u202e",
        "V7 V123 A100 -1.5e3",
    ):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_the_shipped_model_is_within_its_bounds() -> None:
    from safetensors import safe_open

    config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    with safe_open(SHIPPED / "model.safetensors", framework="numpy") as weights:
        parameters = 0
        for name in weights.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
            tensor = weights.get_slice(name)
            assert tensor.get_dtype() == "BF16"
            size = 1
            for length in tensor.get_shape():
                size *= length
            parameters += size
    assert 2_000_000 <= parameters <= 6_000_000
    assert len(load_tokenizer(SHIPPED)) <= MAXIMUM_VOCABULARY
    assert load_recipe(SHIPPED / "build.toml").vocabulary <= MAXIMUM_VOCABULARY
