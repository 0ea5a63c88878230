"""Whatever is changed in a finished evaluation directory, computing it again from the responses finds it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline.errors import ArenaError, EvaluationError
from arena_pipeline.evaluation.runner import evaluate, recompute
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline_tests.evaluation.players import ADAPTER_SHA256, RamblingPlayer, pack

FILES = ("evaluation.json", "responses-broadcast.jsonl", "responses-action.jsonl", "rows.jsonl", "summary.json")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("evaluation")
    evaluate(directory, "arena-dev:4", pack(), RamblingPlayer(ADAPTER_SHA256), batch_size=16)
    return directory


@pytest.fixture
def directory(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "evaluation"))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, values: list[Any]) -> None:
    path.write_text("".join(canonical_json(value) + "\n" for value in values))


def test_an_untouched_directory_is_confirmed(directory: Path, finished: Path) -> None:
    evaluation = recompute(directory)
    assert [row["seed"] for row in evaluation.rows] == [2_000_003 + 137 * index for index in range(4)]
    assert evaluation.summary == read_json(directory / "summary.json")
    assert sorted(path.name for path in directory.iterdir()) == sorted(FILES)
    for name in FILES:
        assert (directory / name).read_bytes() == (finished / name).read_bytes()


def edit_row(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rows = lines(directory / "rows.jsonl")
    change(rows[2])
    write_lines(directory / "rows.jsonl", rows)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda row: row["plays"]["generated"].update(reward=9.0), "plays.generated.reward is 9.0"),
        (lambda row: row["plays"]["dropped"].update(regret=0), "plays.dropped.regret is 0"),
        (lambda row: row["broadcasts"]["blue-1"].update(text="{}"), "broadcasts.blue-1.text is '{}'"),
        (lambda row: row["model"].update(adapter_sha256="c" * 64), "model.adapter_sha256"),
        (lambda row: row.update(order_consistent=1), "order_consistent is 1"),
        (lambda row: row.pop("effects"), "effects is absent"),
    ],
)
def test_an_edited_row_is_found(directory: Path, change: Callable[[dict[str, Any]], None], named: str) -> None:
    edit_row(directory, change)
    with pytest.raises(EvaluationError, match=r"rows\.jsonl:3: .*" + named.replace(".", r"\.")):
        recompute(directory)


def test_a_dropped_row_is_found(directory: Path) -> None:
    rows = lines(directory / "rows.jsonl")
    write_lines(directory / "rows.jsonl", rows[:3])
    with pytest.raises(EvaluationError, match=r"rows\.jsonl"):
        recompute(directory)
    write_lines(directory / "rows.jsonl", rows[1:])
    with pytest.raises(EvaluationError, match=r"rows\.jsonl:1"):
        recompute(directory)
    write_lines(directory / "rows.jsonl", [*rows, rows[0]])
    with pytest.raises(EvaluationError, match=r"rows\.jsonl"):
        recompute(directory)


@pytest.mark.parametrize(
    "path",
    [
        ("conditions", "generated", "mean_regret"),
        ("order_consistency",),
        ("messages", "valid_messages"),
        ("rows_sha256",),
    ],
)
def test_an_edited_summary_is_found(directory: Path, path: tuple[str, ...]) -> None:
    summary = read_json(directory / "summary.json")
    place = summary
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "0" * 64 if path[-1].endswith("sha256") else place[path[-1]] + 1e-9
    write_json(directory / "summary.json", summary)
    with pytest.raises(EvaluationError, match=r"summary\.json: " + r"\.".join(path)):
        recompute(directory)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_found(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(ArenaError, match=name):
        recompute(directory)


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_byte_is_found(directory: Path, name: str) -> None:
    path = directory / name
    data = path.read_bytes()
    for position in range(7, len(data), len(data) // 5):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(ArenaError):
            recompute(directory)
    path.write_bytes(data)
    recompute(directory)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(manifest="arena-dev:3"),
        lambda plan: plan.update(manifest="arena-dev"),
        lambda plan: plan["cases"].pop(),
        lambda plan: plan["cases"][0].__setitem__(2, "defensive"),
        lambda plan: plan["prompts"].update(team_objective="Lose."),
        lambda plan: plan["model"].update(adapter_sha256=None),
        lambda plan: plan.update(batch_size=15),
        lambda plan: plan.update(comment="harmless"),
        lambda plan: plan.pop("prompts"),
    ],
)
def test_a_changed_plan_is_found(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    plan = read_json(directory / "evaluation.json")
    change(plan)
    write_json(directory / "evaluation.json", plan)
    with pytest.raises(ArenaError):
        recompute(directory)


def test_a_case_dropped_everywhere_is_found(directory: Path) -> None:
    """The plan, rows and summary of three cases, made to agree with each other, still lack the fourth's replies."""
    other = directory.parent / "three"
    evaluate(other, "arena-dev:3", pack(), RamblingPlayer(ADAPTER_SHA256), batch_size=16)
    for name in ("evaluation.json", "rows.jsonl", "summary.json"):
        shutil.copy(other / name, directory / name)
    with pytest.raises(EvaluationError, match="request list"):
        recompute(directory)


def test_half_a_run_is_no_evaluation(directory: Path) -> None:
    path = directory / "responses-action.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(EvaluationError, match="batches are finished"):
        recompute(directory)


def test_responses_of_another_model_are_found(directory: Path) -> None:
    other = directory.parent / "other"
    evaluate(other, "arena-dev:4", pack(), RamblingPlayer("c" * 64), batch_size=16)
    shutil.copy(other / "responses-action.jsonl", directory / "responses-action.jsonl")
    with pytest.raises(EvaluationError, match="not of the model and batch size"):
        recompute(directory)
