"""The tasks, each in a real process: what they leave, how they resume, how they refuse, and how they run by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.errors import ConfigError, IntegrityError, ProcessError, SealedSetRefused
from arena_pipeline.evaluation.runner import recompute
from arena_pipeline.processes.launcher import run_task
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.sft.rows import Row
from arena_pipeline.sft.scoring import recompute_scores
from arena_pipeline_tests.processes.conftest import Inputs
from arena_pipeline_tests.processes.programs import environment
from arena_pipeline_tests.processes.test_launcher import program


@pytest.fixture(scope="module")
def trained(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("trained") / "work"
    steps: list[tuple[str, int, int]] = []
    lines: list[str] = []
    result = run_task("train", inputs.train(), work, progress=lambda *step: steps.append(step), log=lines.append)
    rows = sum(len(inputs.dataset.rows(split)) for split in ("train", "validation", "test"))
    [proven] = [line for line in lines if "every row proven: 8 for training, 0 for validation" in line]
    assert f" {rows - 8} others" in proven, "all rows of all splits"
    assert [checkpoint["step"] for checkpoint in result["checkpoints"]] == [2, 4]
    assert ("training", 4, 4) in steps
    assert any(line.startswith("step 4/4: loss ") for line in lines)
    assert not (work / "task.json").exists()
    return work


@pytest.fixture(scope="module")
def adapter(trained: Path) -> dict[str, str]:
    record = json.loads((trained / "output" / "training.json").read_text())
    path = trained / "output" / "checkpoints" / "step-000004"
    return {"path": str(path), "sha256": record["checkpoints"][-1]["adapter_sha256"]}


def scoring(inputs: Inputs, adapter: dict[str, str], split: str, rows: list[Row] | None, **more: Any) -> dict[str, Any]:
    train = inputs.train()
    return {
        "base": train["base"],
        "dataset": train["dataset"],
        "split": split,
        "row_ids": None if rows is None else [row.id for row in rows],
        "models": [{"name": "base"}, {"name": "step-000004", "step": 4, "adapter": adapter}],
        "serving": inputs.serving,
    } | more


def some_rows(inputs: Inputs, split: str) -> list[Row]:
    rows = inputs.dataset.rows(split)
    return [row for row in rows if row.phase == "BROADCAST"][:5] + [row for row in rows if row.phase == "ACT"][:3]


def test_a_training_whose_launcher_was_killed_goes_on_and_ends_the_same(
    inputs: Inputs, trained: Path, tmp_path: Path
) -> None:
    work, payload = tmp_path / "work", tmp_path / "payload.json"
    payload.write_text(json.dumps(inputs.train()))
    with program("train", str(payload), str(work)) as launcher:
        assert launcher.stdout is not None
        while launcher.stdout.readline() != "training 3 4\n":
            pass
        launcher.send_signal(signal.SIGKILL)
    lines: list[str] = []
    (work / "output" / ".training.json.abc12_xy").write_text("cut short")
    run_task("train", inputs.train(), work, log=lines.append)
    assert "resuming after step 2 of 4" in lines
    assert hash_tree(work / "output") == hash_tree(trained / "output")


def test_scores_follow_from_the_saved_replies_and_are_not_asked_again(
    inputs: Inputs, adapter: dict[str, str], tmp_path: Path
) -> None:
    rows, steps = some_rows(inputs, "validation"), []
    payload = scoring(inputs, adapter, "validation", rows)
    summaries = run_task("score_rows", payload, tmp_path, progress=lambda *step: steps.append(step))
    assert (summaries["base"]["step"], summaries["step-000004"]["step"]) == (None, 4)
    assert summaries["step-000004"]["model"]["adapter_sha256"] == adapter["sha256"]
    for name, summary in summaries.items():
        assert recompute_scores(tmp_path / "output" / name, rows) == summary
    assert steps[-1] == ("replies", 16, 16)
    before = hash_tree(tmp_path / "output")
    steps.clear()
    assert run_task("score_rows", payload, tmp_path, progress=lambda *step: steps.append(step)) == summaries
    assert hash_tree(tmp_path / "output") == before
    assert steps == [("replies", 8, 16), ("replies", 16, 16)]


def test_an_arena_evaluation_can_be_computed_again_from_its_directory(
    inputs: Inputs, adapter: dict[str, str], tmp_path: Path
) -> None:
    payload = {
        "base": inputs.base,
        "adapter": adapter,
        "manifest": "arena-dev:2",
        "prompts": asdict(inputs.dataset.prompts),
        "serving": inputs.serving,
    }
    summary = run_task("evaluate_arena", payload, tmp_path)
    assert recompute(tmp_path / "output").summary == summary


def test_sealed_rows_are_refused_in_the_child_too(inputs: Inputs, adapter: dict[str, str], tmp_path: Path) -> None:
    rows = some_rows(inputs, "test")
    payload = scoring(inputs, adapter, "test", rows)
    payload["models"] = payload["models"][1:]
    with pytest.raises(SealedSetRefused, match="the ledger's opening is for None"):
        run_task("score_rows", payload, tmp_path)
    assert not list(tmp_path.rglob("responses.jsonl"))
    run_task("score_rows", payload | {"opened_for_adapter": adapter["sha256"]}, tmp_path)


def test_other_bytes_than_the_payload_names_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    for key, name in (("base", "sha256"), ("dataset", "content_sha256")):
        payload = inputs.train()
        found = payload[key][name]
        payload[key] = payload[key] | {name: "0" * 64}
        with pytest.raises(IntegrityError, match=f"expected sha256 {'0' * 64}, found {found}") as raised:
            run_task("train", payload, tmp_path)
        assert raised.value.found == found
        assert not (tmp_path / "output").exists()
    wrong = inputs.train() | {"learning_rate": 1}
    with pytest.raises(ConfigError, match="payload of task train: learning_rate: unknown key"):
        run_task("train", wrong, tmp_path)
    with pytest.raises(ConfigError, match="task 'tidy': allowed are train, score_rows, evaluate_arena"):
        run_task("tidy", {}, tmp_path)


def test_a_task_file_runs_by_hand(inputs: Inputs, trained: Path, tmp_path: Path) -> None:
    task_file = tmp_path / "task.json"
    command = [sys.executable, "-m", "arena_pipeline.processes.worker", str(task_file)]

    def by_hand(payload: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        task_file.write_text(json.dumps({"task": "train", "payload": payload}))
        return subprocess.run(command, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL)

    wrong = by_hand(inputs.train() | {"device": "abacus"})
    assert (wrong.returncode, wrong.stdout.count("\n")) == (1, 1)
    assert wrong.stdout.startswith("error: payload of task train: device: found 'abacus'; allowed: ")
    done = by_hand(inputs.train())
    assert done.returncode == 0, done.stderr
    *lines, result = done.stdout.splitlines()
    assert "training: 4 of 4" in lines
    assert [checkpoint["step"] for checkpoint in json.loads(result)["checkpoints"]] == [2, 4]
    assert hash_tree(tmp_path / "output") == hash_tree(trained / "output")


def test_a_crash_of_the_child_is_an_error_with_its_traceback(
    inputs: Inputs, adapter: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "output").write_text("a file where the directory should be")
    with pytest.raises(ProcessError, match=r"task score_rows: its process ended with code 1") as raised:
        run_task("score_rows", scoring(inputs, adapter, "validation", None), tmp_path)
    assert "Traceback (most recent call last)" in str(raised.value)
    assert (tmp_path / "task.json").exists()
