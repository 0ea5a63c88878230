"""Generation: greedy and nothing else, the same as a plain loop without padding or cache, and with the adapter on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from arena_pipeline.errors import ConfigError, EvaluationError, TrainingError
from arena_pipeline.serving import transformers_provider
from arena_pipeline.serving.adapters import adapter_sha256, load_adapter, read_adapter
from arena_pipeline.serving.loading import base_sha256, load_base_model, load_tokenizer
from arena_pipeline.serving.requests import ChatPrompt, Completion, Request
from arena_pipeline.serving.responses import ResponseStore, collect
from arena_pipeline.serving.transformers_provider import TransformersProvider
from arena_pipeline_tests.stand_ins import stand_in_rows

NEW_TOKENS = 12
REQUESTS = [
    Request(row.id, "ACT", ChatPrompt(row.messages[0]["content"], row.messages[1]["content"]))
    for row in stand_in_rows(6)
]


def provider(base: Path, adapter: Path | None = None, **options: Any) -> TransformersProvider:
    return TransformersProvider(base, adapter, **({"batch_size": 8, "max_new_tokens": NEW_TOKENS} | options))


def plain_greedy(model: Any, tokenizer: Any, request: Request, ends: Sequence[int] = ()) -> list[int]:
    """Greedy decoding as it is defined: the whole sequence through the model for every token."""
    ids = tokenizer.apply_chat_template(request.prompt.messages, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    start = len(ids)
    with torch.no_grad():
        while len(ids) < start + NEW_TOKENS and (len(ids) == start or ids[-1] not in ends):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[start:]


def copied(base: Path, target: Path) -> Path:
    shutil.copytree(base, target)
    return target


def test_a_padded_batch_gives_every_prompt_its_own_greedy_reply(stand_in_base: Path) -> None:
    """Known trouble 20: padded on the wrong side, a batch answers differently."""
    model, tokenizer = load_base_model(stand_in_base, "float32", "cpu"), load_tokenizer(stand_in_base)
    replies = provider(stand_in_base).respond(REQUESTS)
    assert len({reply.prompt_tokens for reply in replies}) > 2
    assert len({reply.text for reply in replies}) > 2
    for request, reply in zip(REQUESTS, replies, strict=True):
        tokens = plain_greedy(model, tokenizer, request)
        assert reply == Completion(tokenizer.decode(tokens), "length", reply.prompt_tokens, NEW_TOKENS)
        prompt = tokenizer.apply_chat_template(request.prompt.messages, add_generation_prompt=True, return_dict=True)
        assert reply.prompt_tokens == len(prompt["input_ids"])


def test_a_reply_ends_at_an_end_token_which_is_counted_but_not_part_of_the_text(
    stand_in_base: Path, tmp_path: Path
) -> None:
    model, tokenizer = load_base_model(stand_in_base, "float32", "cpu"), load_tokenizer(stand_in_base)
    fourth = plain_greedy(model, tokenizer, REQUESTS[0])[3]
    base = copied(stand_in_base, tmp_path / "base")
    settings = json.loads((base / "generation_config.json").read_text())
    settings["eos_token_id"] = [tokenizer.eos_token_id, fourth]
    (base / "generation_config.json").write_text(json.dumps(settings))
    replies = provider(base).respond(REQUESTS)
    assert replies[0].finish_reason == "stop"
    for request, reply in zip(REQUESTS, replies, strict=True):
        tokens = plain_greedy(model, tokenizer, request, (tokenizer.eos_token_id, fourth))
        stopped = tokens[-1] in (tokenizer.eos_token_id, fourth)
        assert reply.finish_reason == ("stop" if stopped else "length")
        assert reply.completion_tokens == len(tokens)
        assert reply.text == tokenizer.decode(tokens[:-1] if stopped else tokens)


def test_sampling_settings_of_the_base_model_do_not_reach_generation(stand_in_base: Path, tmp_path: Path) -> None:
    base = copied(stand_in_base, tmp_path / "base")
    settings = json.loads((base / "generation_config.json").read_text())
    settings |= {"do_sample": True, "temperature": 5.0, "top_k": 50, "repetition_penalty": 4.0, "max_new_tokens": 3}
    (base / "generation_config.json").write_text(json.dumps(settings))
    assert provider(base).respond(REQUESTS) == provider(stand_in_base).respond(REQUESTS)


def test_thinking_is_disabled(stand_in_base: Path, tmp_path: Path) -> None:
    base = copied(stand_in_base, tmp_path / "base")
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    shutil.copyfile(template, base / "chat_template.jinja")
    tokenizer = load_tokenizer(base)
    text = tokenizer.apply_chat_template(
        REQUESTS[0].prompt.messages, add_generation_prompt=True, enable_thinking=False, tokenize=False
    )
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    (reply,) = provider(base).respond(REQUESTS[:1])
    assert reply.prompt_tokens == len(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_an_adapter_is_on_and_merging_it_changes_nothing_else(stand_in_base: Path, stand_in_adapter: Path) -> None:
    """Known troubles 18 and 24: outputs equal to the base model's, or merged ones that differ from the adapter's."""
    tokenizer = load_tokenizer(stand_in_base)
    adapted = load_adapter(load_base_model(stand_in_base, "float32", "cpu"), stand_in_adapter, merge=False)
    replies = provider(stand_in_base, stand_in_adapter).respond(REQUESTS)
    assert replies != provider(stand_in_base).respond(REQUESTS)
    for request, reply in zip(REQUESTS, replies, strict=True):
        assert reply.text == tokenizer.decode(plain_greedy(adapted, tokenizer, request))
    merged = load_adapter(load_base_model(stand_in_base, "float32", "cpu"), stand_in_adapter, merge=True)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-4)


def test_bfloat16_serves_the_adapter_unmerged(stand_in_base: Path, stand_in_adapter: Path) -> None:
    model = provider(stand_in_base, stand_in_adapter, dtype="bfloat16")
    assert model.identity["adapter_applied"] == "unmerged"
    assert len(model.respond(REQUESTS)) == len(REQUESTS)


def test_identity_names_everything_that_decides_the_replies(stand_in_base: Path, stand_in_adapter: Path) -> None:
    plain, adapted = provider(stand_in_base).identity, provider(stand_in_base, stand_in_adapter).identity
    assert plain["kind"] == "transformers"
    assert plain["base_sha256"] == base_sha256(stand_in_base)
    assert (plain["adapter_sha256"], adapted["adapter_sha256"]) == (None, adapter_sha256(stand_in_adapter))
    assert {key for key in plain if plain[key] != adapted[key]} == {"adapter_sha256", "adapter_applied"}
    assert plain["decoding"] == {"strategy": "greedy", "max_new_tokens": NEW_TOKENS, "thinking": False}
    assert (plain["dtype"], plain["device"], plain["batch_size"]) == ("float32", "cpu", 8)
    assert json.loads(json.dumps(adapted)) == adapted
    assert str(stand_in_base) not in json.dumps(adapted)


def test_a_batch_larger_than_the_identity_says_is_refused(stand_in_base: Path) -> None:
    with pytest.raises(EvaluationError, match="a batch of 6 requests, but the provider's size is 5"):
        provider(stand_in_base, batch_size=5).respond(REQUESTS)


def test_an_adapter_that_would_change_nothing_or_does_not_fit_is_refused(
    stand_in_base: Path, stand_in_adapter: Path, tmp_path: Path
) -> None:
    tensors = read_adapter(stand_in_adapter)

    def changed(name: str, new: dict[str, torch.Tensor]) -> Path:
        directory = copied(stand_in_adapter, tmp_path / name)
        save_file(new, directory / "adapter_model.safetensors")
        return directory

    zero = {name: tensor * (".lora_A." in name) for name, tensor in tensors.items()}
    with pytest.raises(TrainingError, match="all its B matrices are zero"):
        provider(stand_in_base, changed("zero", zero)).respond(REQUESTS)
    fewer = dict(list(tensors.items())[1:])
    with pytest.raises(TrainingError, match="its tensors are not those of its configuration"):
        provider(stand_in_base, changed("fewer", fewer)).respond(REQUESTS)
    renamed = {name.replace("layers.0", "layers.7"): tensor for name, tensor in tensors.items()}
    with pytest.raises(TrainingError, match="its tensors are not those of its configuration"):
        provider(stand_in_base, changed("renamed", renamed)).respond(REQUESTS)
    wide = {name: torch.cat([tensor, tensor]) for name, tensor in tensors.items()}
    with pytest.raises(TrainingError, match="does not fit the base model"):
        provider(stand_in_base, changed("wide", wide)).respond(REQUESTS)


def test_only_safetensors_of_a_real_base_model_are_loaded(stand_in_base: Path, tmp_path: Path) -> None:
    pickled = copied(stand_in_base, tmp_path / "pickled")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        provider(pickled).respond(REQUESTS)
    coded = copied(stand_in_base, tmp_path / "coded")
    config = json.loads((coded / "config.json").read_text())
    config |= {"model_type": "unheard-of", "auto_map": {"AutoModelForCausalLM": "code.Model", "AutoConfig": "code.C"}}
    (coded / "config.json").write_text(json.dumps(config))
    (coded / "code.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ValueError, match="trust_remote_code"):
        provider(coded).respond(REQUESTS)
    with pytest.raises(ConfigError, match=r"not a base model \(no config\.json\)"):
        provider(tmp_path)
    with pytest.raises(ConfigError, match="dtype 'float16'"):
        provider(stand_in_base, dtype="float16").respond(REQUESTS)
    mute = copied(stand_in_base, tmp_path / "mute")
    (mute / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        provider(mute)


def test_float32_weights_are_those_stored(stand_in_base: Path) -> None:
    stored = AutoModelForCausalLM.from_pretrained(stand_in_base, dtype="auto").state_dict()
    loaded = load_base_model(stand_in_base, "float32", "cpu").state_dict()
    for name, tensor in stored.items():
        assert tensor.dtype == torch.bfloat16
        assert loaded[name].equal(tensor.float())


def test_a_small_model_on_a_cpu_answers_in_as_many_lanes_as_threads_with_the_same_replies(
    stand_in_base: Path, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            playing = provider(stand_in_base, batch_size=1)
            assert playing.lanes == threads
            collect(REQUESTS, playing, ResponseStore(tmp_path / f"{threads}.jsonl"), 1)
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "3.jsonl").read_bytes()


def test_a_large_model_or_an_accelerator_is_filled_by_one_batch(
    stand_in_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provider(stand_in_base, device="cuda").lanes == 1
    monkeypatch.setattr(transformers_provider, "_SMALL_MODEL_BYTES", 0)
    assert provider(stand_in_base).lanes == 1
