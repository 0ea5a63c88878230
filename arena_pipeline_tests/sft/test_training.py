"""Training: the stated loss, the drawn order, every line of the recipe, guards, whole checkpoints, exact resuming."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from arena_pipeline.errors import TrainingError
from arena_pipeline.serving.adapters import adapter_sha256, check_adapter
from arena_pipeline.serving.loading import base_sha256, load_tokenizer
from arena_pipeline.sft.collation import training_order
from arena_pipeline.sft.encoding import EncodedRow, encode_rows, training_template
from arena_pipeline.sft.recipe import checkpoint_steps, lane_count, training_steps, warmup
from arena_pipeline.sft.trainer import ArenaTrainer, Guard, History, build_trainer
from arena_pipeline_tests.sft.runs import DRAWN, RECIPE, TRAIN_ROWS, VALIDATION_ROWS, recipe_with, small_run
from arena_pipeline_tests.stand_ins import StandInRow, stand_in_rows

PLAIN = recipe_with(dropout=0.0)


@pytest.fixture(scope="module")
def encoded(stand_in_base: Path) -> dict[str, EncodedRow]:
    tokenizer = load_tokenizer(stand_in_base)
    template = training_template(stand_in_base, tokenizer)
    return {row.id: row for row in encode_rows([*TRAIN_ROWS, *VALIDATION_ROWS], tokenizer, template, max_length=128)}


@pytest.fixture(scope="module")
def straight(stand_in_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("straight") / "work"
    small_run(work, stand_in_base)
    return work


def base_losses(base: Path, rows: Sequence[EncodedRow]) -> list[torch.Tensor]:
    """Each row's per-token losses under the untouched base, computed one row at a time, without padding."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    losses = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor(row.input_ids)
            logits = model(ids[None]).logits[0, row.reply_start - 1 : -1]
            losses.append(torch.nn.functional.cross_entropy(logits, ids[row.reply_start :], reduction="none"))
    return losses


def test_step_losses_are_weighted_means_over_the_drawn_batches(
    stand_in_base: Path, encoded: dict[str, EncodedRow], tmp_path: Path
) -> None:
    """With a learning rate that changes next to nothing, every step's loss is the base's on that step's drawn rows."""
    frozen = recipe_with(PLAIN, learning_rate=1e-9, warmup_steps=0)
    record = small_run(tmp_path / "a", stand_in_base, frozen)
    assert len(record["steps"]) == 6
    for index, step in enumerate(record["steps"]):
        rows = [encoded[row_id] for row_id in DRAWN[6 * index : 6 * index + 6]]
        weights = [3.0 if row.phase == "ACT" else 1.0 for row in rows]
        losses = base_losses(stand_in_base, rows)
        expected = sum(w * float(row.sum()) for w, row in zip(weights, losses, strict=True)) / sum(
            w * len(row) for w, row in zip(weights, losses, strict=True)
        )
        assert step["step"] == index + 1
        assert step["loss"] == pytest.approx(expected, abs=2e-5)
    whole = small_run(tmp_path / "b", stand_in_base, recipe_with(frozen, micro_batch_size=6))
    for left, right in zip(record["steps"], whole["steps"], strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-6)
        assert left["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-4)


def test_validation_loss_is_the_unweighted_mean_over_all_tokens(
    stand_in_base: Path, encoded: dict[str, EncodedRow], tmp_path: Path
) -> None:
    recipe = recipe_with(PLAIN, learning_rate=1e-9, warmup_steps=0, checkpoints=1)
    record = small_run(tmp_path / "a", stand_in_base, recipe)
    rows = [encoded[row.id] for row in VALIDATION_ROWS]
    losses = torch.cat(base_losses(stand_in_base, rows))
    (checkpoint,) = record["checkpoints"]
    assert checkpoint["validation_loss"] == pytest.approx(float(losses.mean()), abs=2e-5)
    acts = torch.cat(base_losses(stand_in_base, [row for row in rows if row.phase == "ACT"]))
    assert checkpoint["validation_loss_by_phase"]["ACT"] == pytest.approx(float(acts.mean()), abs=2e-5)
    assert record["encoding"]["validation"]["supervised_tokens"] == len(losses)


def test_a_step_trains_on_exactly_its_drawn_rows(encoded: dict[str, EncodedRow]) -> None:
    order = training_order(DRAWN, encoded, 6)
    for start in range(0, len(DRAWN), 6):
        step = order[start : start + 6]
        assert sorted(row.id for row in step) == sorted(DRAWN[start : start + 6])
        assert [len(row.input_ids) for row in step] == sorted(len(row.input_ids) for row in step)
    with pytest.raises(TrainingError, match="draw 6 ff. names row elsewhere, which is not a training row"):
        training_order([*DRAWN[:6], "elsewhere"], encoded, 6)


def test_checkpoints_are_whole_adapters_that_name_no_place(straight: Path, stand_in_base: Path) -> None:
    record = json.loads((straight / "output" / "training.json").read_text())
    assert [entry["step"] for entry in record["checkpoints"]] == [2, 4, 6]
    losses = [entry["validation_loss"] for entry in record["checkpoints"]]
    assert losses == sorted(losses, reverse=True)
    directories = sorted(path.name for path in (straight / "output" / "checkpoints").iterdir())
    assert directories == ["step-000002", "step-000004", "step-000006"]
    assert sorted(path.name for path in straight.iterdir()) == ["output", "run.json", "timings.json"]
    assert sorted(path.name for path in (straight / "output").iterdir()) == ["checkpoints", "training.json"]
    for entry, name in zip(record["checkpoints"], directories, strict=True):
        directory = straight / "output" / "checkpoints" / name
        assert sorted(path.name for path in directory.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
        assert adapter_sha256(directory) == entry["adapter_sha256"]
        config = check_adapter(directory)
        assert config["base_model_name_or_path"] is None
        assert str(stand_in_base) not in (directory / "adapter_config.json").read_text()
        assert entry["moved"] > 0
    assert record["base_sha256"] == base_sha256(stand_in_base)
    trainable = record["trainable"]
    assert len(trainable["names"]) == 2 * 2 * 3
    assert trainable["parameters"] == 2 * 4 * ((32 + 32) + (32 + 16) + (64 + 32))
    assert record["recipe"] == RECIPE.model_dump(mode="json")
    assert "weighted x3" in record["loss"]


@pytest.mark.parametrize(
    ("where", "resumed", "kept"),
    [
        ("step", 4, ["step-000002", "step-000004"]),
        ("between", 3, ["step-000002"]),
        ("checkpoint", 2, ["step-000002"]),
        # Of the second checkpoint's step: killed before the trainer's state was whole, the run goes on from the first.
        ("state", 2, ["step-000002", "step-000004"]),
    ],
)
def test_a_killed_run_resumes_and_ends_with_the_same_bytes(
    straight: Path, stand_in_base: Path, tmp_path: Path, where: str, resumed: int, kept: list[str]
) -> None:
    """Known trouble 13. Dropout is on, so the random state must be taken up again too."""
    work = tmp_path / "work"
    program = [sys.executable, "-m", "arena_pipeline_tests.sft.runs", str(work), str(stand_in_base), where]
    child = subprocess.run(program, capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert not (work / "output" / "training.json").exists()
    found = [path.name for path in (work / "output" / "checkpoints").iterdir() if not path.name.startswith(".")]
    assert sorted(found) == kept
    lines: list[str] = []
    small_run(work, stand_in_base, log=lines.append)
    assert f"resuming after step {resumed} of 6" in lines
    assert (work / "output" / "training.json").read_bytes() == (straight / "output" / "training.json").read_bytes()
    for path in straight.glob("output/checkpoints/*/*"):
        assert (work / path.relative_to(straight)).read_bytes() == path.read_bytes()
    assert json.loads((work / "timings.json").read_text())["resumed_at"] == [resumed]
    assert sorted(path.name for path in (work / "output" / "checkpoints").iterdir()) == [
        "step-000002",
        "step-000004",
        "step-000006",
    ]


def test_a_finished_run_is_not_trained_again_and_its_bytes_are_checked(
    straight: Path, stand_in_base: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    shutil.copytree(straight, work)
    lines: list[str] = []
    assert small_run(work, stand_in_base, log=lines.append) == json.loads(
        (straight / "output" / "training.json").read_text()
    )
    assert lines == []
    with pytest.raises(TrainingError, match=r"run\.json: another run was begun here \(recipe differ\)"):
        small_run(work, stand_in_base, recipe_with(seed=8))
    with pytest.raises(TrainingError, match=r"\(mixture_sha256 differ\)"):
        small_run(work, stand_in_base, row_ids=DRAWN[::-1])
    weights = work / "output" / "checkpoints" / "step-000004" / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(TrainingError, match="step-000004: changed after it was trained"):
        small_run(work, stand_in_base)


def test_gradient_checkpointing_trains_the_same_adapter(stand_in_base: Path, tmp_path: Path) -> None:
    """Known trouble 11: checkpointing with a frozen base can train nothing."""
    plain = small_run(tmp_path / "a", stand_in_base, PLAIN)
    checkpointed = small_run(tmp_path / "b", stand_in_base, recipe_with(PLAIN, gradient_checkpointing=True))
    for left, right in zip(plain["steps"], checkpointed["steps"], strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-5)
    assert right["loss"] < plain["steps"][0]["loss"] - 0.1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_any_number_of_cores_trains_the_same_bytes(
    stand_in_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Micro-batches side by side add up in their order, each computed in one thread."""
    before = torch.get_num_threads()
    recipe = recipe_with(PLAIN, precision=precision)
    threads: list[int] = []
    differentiate = ArenaTrainer.compute_loss

    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        threads.append(torch.get_num_threads())
        return differentiate(self, *arguments, **named)

    monkeypatch.setattr(ArenaTrainer, "compute_loss", watched)
    try:
        for cores in (1, 2, 8):
            torch.set_num_threads(cores)
            threads.clear()
            small_run(tmp_path / str(cores), stand_in_base, recipe)
            assert torch.get_num_threads() == cores
            assert set(threads) == {1}
    finally:
        torch.set_num_threads(before)
    one, *others = ([path.read_bytes() for path in sorted((tmp_path / name / "output").rglob("*.*"))] for name in "128")
    assert len(one) == 1 + 2 * 3
    assert others == [one, one]


def test_lanes_are_as_many_as_help() -> None:
    assert lane_count(PLAIN, "cpu", cores=2) == 2
    assert lane_count(PLAIN, "cpu", cores=8) == 3, "micro-batches of a step"
    assert lane_count(PLAIN, "cuda", cores=8) == 1
    assert lane_count(RECIPE, "cpu", cores=8) == 1, "with dropout, chance would decide"


def test_bfloat16_is_autocast_over_float32_weights(stand_in_base: Path, tmp_path: Path) -> None:
    exact = small_run(tmp_path / "a", stand_in_base, PLAIN)
    cast = small_run(tmp_path / "b", stand_in_base, recipe_with(PLAIN, precision="bfloat16"))
    differences = [abs(a["loss"] - b["loss"]) for a, b in zip(exact["steps"], cast["steps"], strict=True)]
    assert 0 < max(differences) < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 1e30, "warmup_steps": 0, "max_grad_norm": 0.0}, "is not finite"),
        ({"learning_rate": 0.0}, "the adapter has not moved"),
        ({"max_length": 60}, r"row row-\d+: \d+ tokens, more than max_length 60"),
        ({"steps": 7}, "asks for 7 steps, but the 34 drawn rows fill only 6"),
    ],
)
def test_a_run_that_cannot_be_right_is_stopped(
    stand_in_base: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        small_run(tmp_path / "work", stand_in_base, recipe_with(**change))
    assert not (tmp_path / "work" / "output" / "training.json").exists()


@pytest.mark.parametrize("where", ["rows", "validation_rows", "other_rows"])
def test_every_row_is_proven_before_the_first_step(stand_in_base: Path, tmp_path: Path, where: str) -> None:
    """Drawn or not, and of the test split too: a row that does not fit stops the run while it has cost nothing."""
    long = StandInRow("too-long", "ACT", "You are one of four agents.", "x" * 400, '{"action_id":"A0"}')
    given = {"rows": TRAIN_ROWS, "validation_rows": VALIDATION_ROWS, "other_rows": stand_in_rows(3, "test")}
    given[where] = [*given[where], long]
    work = tmp_path / "work"
    with pytest.raises(TrainingError, match=r"row too-long: \d+ tokens, more than max_length 128"):
        small_run(work, stand_in_base, **given)
    assert [path.name for path in work.iterdir()] == ["run.json"], "nothing was trained"


def test_a_frozen_adapter_or_a_zero_gradient_stops_the_first_step() -> None:
    """Known trouble 10: a trainer that froze a passed adapter reported a gradient norm of 0 and went on."""
    guard = Guard(History(), [1], lambda history: None)
    state = SimpleNamespace(global_step=1, max_steps=2)
    weight = torch.nn.Parameter(torch.zeros(2))
    model = SimpleNamespace(named_parameters=lambda: [("layer.lora_B.default.weight", weight)])
    logs = {"loss": 1.0, "grad_norm": 0.5, "learning_rate": 0.0}
    guard.on_log(None, state, None, logs=logs, model=model)  # nothing can have moved yet
    with pytest.raises(TrainingError, match="no LoRA B matrix has moved"):
        guard.on_log(None, state, None, logs=logs | {"learning_rate": 1e-3}, model=model)
    with pytest.raises(TrainingError, match="the gradient is zero"):
        guard.on_log(None, state, None, logs=logs | {"grad_norm": 0.0}, model=model)
    with pytest.raises(TrainingError, match="is not finite"):
        guard.on_log(None, state, None, logs=logs | {"loss": math.nan}, model=model)
    weight.data += 1
    guard.on_log(None, state, None, logs=logs | {"learning_rate": 1e-3}, model=model)


def test_every_line_of_the_recipe_reaches_the_trainer(
    stand_in_base: Path, encoded: dict[str, EncodedRow], tmp_path: Path
) -> None:
    recipe = recipe_with(
        rank=2, alpha=5.5, dropout=0.25, learning_rate=2e-3, weight_decay=0.3, warmup_steps=None,
        warmup_ratio=0.3, schedule="linear", max_grad_norm=0.7, seed=11, precision="bfloat16", max_length=99,
        gradient_checkpointing=True,
    )  # fmt: skip
    tokenizer = load_tokenizer(stand_in_base)
    model = AutoModelForCausalLM.from_pretrained(stand_in_base, dtype=torch.float32)
    order = training_order(DRAWN, encoded, 6)
    trainer = build_trainer(model, tokenizer, order, recipe, 5, tmp_path, History(), [], [5], lambda _: None)
    args, lora = trainer.args, trainer.model.peft_config["default"]
    assert (lora.r, lora.lora_alpha, lora.lora_dropout, lora.bias) == (2, 5.5, 0.25, "none")
    assert lora.target_modules == set(recipe.target_modules)
    assert (args.learning_rate, args.weight_decay, args.max_grad_norm, args.max_length) == (2e-3, 0.3, 0.7, 99)
    assert (args.warmup_steps, args.max_steps, args.lr_scheduler_type, args.seed) == (2, 5, "linear", 11)
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (6, 1)
    assert args.gradient_checkpointing
    assert args.bf16
    assert not args.packing
    assert args.report_to == []
    steps = [step["micro_batches"] for step in trainer.get_train_dataloader()]
    assert [[len(batch["input_ids"]) for batch in step] for step in steps] == [[2, 2, 2]] * 5 + [[2, 2]]
    assert steps[0][0]["input_ids"][0].tolist()[: len(order[0].input_ids)] == list(order[0].input_ids)
    trainer.create_optimizer_and_scheduler(5)
    decays = {group["weight_decay"] for group in trainer.optimizer.param_groups if group["params"]}
    assert decays == {0.3}


def test_checkpoints_are_evenly_spaced() -> None:
    assert checkpoint_steps(310, 8) == [39, 78, 116, 155, 194, 232, 271, 310]
    assert checkpoint_steps(2, 8) == [1, 2]
    assert checkpoint_steps(6, 3) == [2, 4, 6]
    assert training_steps(recipe_with(effective_batch_size=32, micro_batch_size=8), 9916) == 310
    assert warmup(recipe_with(warmup_steps=None, warmup_ratio=0.03), 310) == 10
    with pytest.raises(TrainingError, match="the mixture is empty"):
        training_steps(recipe_with(), 0)


def test_an_adapter_with_more_than_lora_is_refused(straight: Path, tmp_path: Path) -> None:
    """Known trouble 26."""
    directory = tmp_path / "adapter"
    shutil.copytree(straight / "output" / "checkpoints" / "step-000006", directory)
    path = directory / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"modules_to_save": ["lm_head"]}))
    with pytest.raises(TrainingError, match=r"modules_to_save is \['lm_head'\]"):
        check_adapter(directory)
    (directory / "adapter_model.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"not an adapter \(adapter_model\.safetensors is missing\)"):
        check_adapter(directory)
