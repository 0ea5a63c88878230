"""Every check passes on what was computed, and fails on files that are consistent in themselves and yet not right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena_pipeline.checks import BODIES
from arena_pipeline.errors import ArenaError
from arena_pipeline.evaluation.runner import evaluate
from arena_pipeline.evaluation.scripted_provider import ScriptedProvider
from arena_pipeline.provenance.files import read_json, write_bytes, write_json
from arena_pipeline.resources.history import BLOCKING_CHECKS
from arena_pipeline.resources.reader import Reader
from arena_pipeline.serving.adapters import WEIGHTS_FILE, adapter_sha256
from arena_pipeline.serving.requests import Completion, Request
from arena_pipeline.sft.scoring import score_split
from arena_pipeline.sft.smoke import smoke_rows
from arena_pipeline_tests.lineages import Lineage, copy_of, replaced

Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def reader(micro: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A copy of the lineage that the tests of this module share: each puts back what it replaced."""
    with copy_of(micro, tmp_path_factory.mktemp("checks") / "project").reader() as reader:
        yield reader


def run_check(reader: Reader, asset: str, name: str) -> dict[str, Any]:
    return BODIES[asset][BLOCKING_CHECKS[asset].index(name)](reader)


def edit(file: str, path: Sequence[Any], value: Any) -> Change:
    """Set a value in a JSON file."""

    def change(directory: Path) -> None:
        body = read_json(directory / file)
        place = body
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != value
        place[path[-1]] = value
        write_json(directory / file, body)

    return change


def swap(left: str, right: str) -> Change:
    """Swap two directories."""

    def change(directory: Path) -> None:
        (directory / left).rename(directory / "kept")
        (directory / right).rename(directory / left)
        (directory / "kept").rename(directory / right)

    return change


def clear(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def closed(directory: Path) -> None:
    clear(directory)
    write_json(directory / "closed.json", {"opened": False, "because": "somebody says so"})


def drop_a_row(directory: Path) -> None:
    path = directory / "test.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def change_a_row(directory: Path) -> None:
    path = directory / "rows.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    row["plays"]["generated"]["reward"] += 0.05
    path.write_text("\n".join([json.dumps(row, sort_keys=True, separators=(",", ":")), *others]) + "\n")


def rewrite_weights(change: Callable[[dict[str, Any]], None], step: int = 2) -> Change:
    """Change a checkpoint's weights, and the record with them."""

    def apply(directory: Path) -> None:
        from safetensors.numpy import load_file, save

        adapter = directory / "checkpoints" / f"step-{step:06d}"
        weights = load_file(adapter / WEIGHTS_FILE)
        change(weights)
        write_bytes(adapter / WEIGHTS_FILE, save(weights, metadata={"format": "pt"}))
        record = read_json(directory / "training.json")
        for entry in record["checkpoints"]:
            if entry["step"] == step:
                entry["adapter_sha256"] = adapter_sha256(adapter)
        write_json(directory / "training.json", record)

    return apply


def one_is_not_a_number(weights: dict[str, Any]) -> None:
    next(iter(weights.values())).flat[0] = np.nan


def back_to_zero(weights: dict[str, Any]) -> None:
    for name, values in weights.items():
        if ".lora_B." in name:
            values[:] = 0


def two_equal_checkpoints(directory: Path) -> None:
    checkpoints = directory / "checkpoints"
    shutil.rmtree(checkpoints / "step-000002")
    shutil.copytree(checkpoints / "step-000001", checkpoints / "step-000002")
    record = read_json(directory / "training.json")
    record["checkpoints"][1]["adapter_sha256"] = record["checkpoints"][0]["adapter_sha256"]
    write_json(directory / "training.json", record)


def praise(directory: Path) -> None:
    path = directory / "README.md"
    title, blank, description, *others = path.read_text().split("\n")
    path.write_text("\n".join([title, blank, f"{description} It is the best.", *others]))


def add_a_line(directory: Path) -> None:
    path = directory / "README.md"
    path.write_text(f"{path.read_text()}\nIt is the best.")


CASES: list[tuple[str, str, Change, str]] = [
    ("arena_sft_dataset", "pins", drop_a_row, "test.jsonl|expected sha256"),
    ("dataset_audit", "valid", edit("audit.json", ["num_examples"], 1), "not what the audit of these bytes says"),
    ("prompts_in_use", "pins", edit("prompts.json", ["team_objective"], "Win."), "expected sha256 .*, found "),
    ("frozen_manifest", "pins", edit("manifests.json", ["sealed", "cases", 0, 0], 5), "frozen_manifest again"),
    ("base_model", "pins", edit("base-model.json", ["sha256"], "0" * 64), "expected sha256 .*, found 0000"),
    (
        "scripted_baselines",
        "recomputed",
        edit("sealed.json", ["policies", 2, "mean_reward"], 3.0),
        r"policies\.2\.mean_reward is 3\.0 instead of",
    ),
    ("oracle_evaluation", "perfect", change_a_row, r"rows\.jsonl:1: .*reward is .*, recomputed from the responses"),
    ("base_dev_evaluation", "recomputed", change_a_row, r"rows\.jsonl:1: "),
    ("base_arena_evaluation", "recomputed", edit("summary.json", ["cases"], 3), "cases is 3 instead"),
    (
        "base_validation_scores",
        "recomputed",
        edit("base/summary.json", ["exact"], 1.0),
        r"summary\.json: exact is 1\.0",
    ),
    ("lora_checkpoints", "finite_and_moved", rewrite_weights(one_is_not_a_number), "step 2: .* is not finite"),
    (
        "lora_checkpoints",
        "finite_and_moved",
        rewrite_weights(back_to_zero, step=1),
        "step 1: the adapter has not moved",
    ),
    ("lora_checkpoints", "finite_and_moved", two_equal_checkpoints, "step 2: the adapter has not moved"),
    ("lora_checkpoints", "finite_and_moved", swap("checkpoints/step-000001", "checkpoints/step-000002"), "expected"),
    ("lora_checkpoints", "finite_and_moved", edit("mixture.json", ["row_ids", 0], "x"), r"mixture\.json: row_ids\.0"),
    ("lora_checkpoints", "finite_and_moved", edit("training.json", ["mixture_sha256"], "x"), "trained on mixture x"),
    ("checkpoint_scores", "recomputed", swap("step-000001", "step-000002"), "step-000001: adapter_sha256 is"),
    (
        "selected_checkpoint",
        "recomputed",
        edit("selection.json", ["num_eligible"], 1),
        "num_eligible is 1 instead of 2",
    ),
    (
        "selected_checkpoint",
        "recomputed",
        edit("validation-summary.json", ["act", "exact"], 1.0),
        r"validation-summary\.json: act\.exact",
    ),
    ("sft_dev_evaluation", "recomputed", change_a_row, r"rows\.jsonl:1: "),
    ("test_evaluation", "bound_in_ledger", edit("opening.json", ["ordinal"], 7), "ordinal is 7 instead of 1"),
    ("test_evaluation", "bound_in_ledger", edit("test/summary.json", ["exact"], 1.0), r"summary\.json: exact is 1\.0"),
    ("test_evaluation", "bound_in_ledger", closed, "says that nothing was opened, the ledger says"),
    ("sft_arena_evaluation", "bound_in_ledger", change_a_row, r"rows\.jsonl:1: "),
    ("sft_arena_evaluation", "bound_in_ledger", closed, "disagree on whether anything was opened"),
    (
        "communication_comparison",
        "recomputed",
        edit("sealed.json", ["effects", "generated_minus_dropped", "mean"], 9.0),
        r"effects\.generated_minus_dropped\.mean is 9\.0",
    ),
    ("communication_comparison", "recomputed", lambda path: (path / "sealed.json").unlink(), "holds .*, expected"),
    ("gate_verdicts", "recomputed", edit("verdict.json", ["promoted"], True), "promoted is True instead of False"),
    ("gate_verdicts", "recomputed", edit("experiment.json", ["recipe", "rank"], 8), "recipe.rank is 8 instead of 4"),
    ("gate_verdicts", "recomputed", lambda path: (path / "experiment.json").unlink(), "no file 'experiment.json'"),
    ("adapter_card", "files", edit("adapter-files.json", ["files", "adapter_config.json"], "0"), "not the hashes of"),
    ("adapter_card", "files", praise, r"README\.md:3: '.* It is the best\.' instead of '.*', computed again"),
    ("adapter_card", "files", add_a_line, r"README\.md:\d+: 'It is the best\.' instead of None, computed again"),
]


@pytest.mark.parametrize("asset", BLOCKING_CHECKS)
def test_passes_on_what_was_computed(reader: Reader, asset: str) -> None:
    for name in BLOCKING_CHECKS[asset]:
        assert run_check(reader, asset, name)


@pytest.mark.parametrize(
    ("asset", "name", "change", "message"), CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)]
)
def test_fails_on_other_content(reader: Reader, asset: str, name: str, change: Change, message: str) -> None:
    with replaced(reader, asset, change), pytest.raises(ArenaError, match=message):
        run_check(reader, asset, name)


@pytest.mark.parametrize(
    ("asset", "file", "message"),
    [
        ("selected_checkpoint", "validation-summary.json", "validation: ids_sha256 is '000"),
        ("test_evaluation", "test/summary.json", "test: ids_sha256 is '000"),
    ],
)
def test_a_summary_of_other_rows_is_no_evidence(reader: Reader, asset: str, file: str, message: str) -> None:
    with (
        replaced(reader, asset, edit(file, ["ids_sha256"], "0" * 64)),
        pytest.raises(ArenaError, match=message),
    ):
        run_check(reader, "gate_verdicts", "recomputed")


def test_settings_that_changed_since_are_found(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = reader.experiment.base_model.model_copy(update={"path": "data/base_models/other"})
    monkeypatch.setitem(vars(reader), "experiment", reader.experiment.model_copy(update={"base_model": elsewhere}))
    with pytest.raises(ArenaError, match=r"experiment\.json: base_model\.path is .*arena-tiny' instead of .*/other'"):
        run_check(reader, "gate_verdicts", "recomputed")
    with pytest.raises(ArenaError, match=r"README\.md:\d+: 'base = .*arena-tiny\"' instead of 'base = .*/other\"'"):
        run_check(reader, "adapter_card", "files")


@pytest.mark.parametrize(
    ("asset", "other", "message"),
    [
        ("oracle_evaluation", "base_arena_evaluation", "not by the oracle"),
        ("base_arena_evaluation", "base_dev_evaluation", "manifest_sha256 is"),
        ("base_arena_evaluation", "sft_arena_evaluation", "adapter_sha256 is"),
        ("sft_dev_evaluation", "base_dev_evaluation", "adapter_sha256 is None"),
    ],
)
def test_fails_on_a_valid_evaluation_of_something_else(reader: Reader, asset: str, other: str, message: str) -> None:
    def take(directory: Path) -> None:
        clear(directory)
        shutil.copytree(reader.artifact(other).path, directory, dirs_exist_ok=True)

    with replaced(reader, asset, take), pytest.raises(ArenaError, match=message):
        run_check(reader, asset, BLOCKING_CHECKS[asset][0])


def test_an_oracle_that_is_not_perfect_fails(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in the evaluator shows as an imperfect oracle: here, a script that calls itself the oracle."""

    def play(directory: Path) -> None:
        clear(directory)
        pack = reader.prompts(reader.artifact("prompts_in_use"))
        manifest = reader.recorded_manifest(reader.artifact("frozen_manifest"), "sealed")
        provider = ScriptedProvider("independent_local")
        monkeypatch.setattr(ScriptedProvider, "identity", property(lambda self: ORACLE_IDENTITY))
        evaluate(directory, manifest.name, pack, provider, batch_size=64)

    ORACLE_IDENTITY = ScriptedProvider("oracle").identity
    with (
        replaced(reader, "oracle_evaluation", play),
        pytest.raises(ArenaError, match="condition generated has regret .* expected 0 and 1: the evaluator"),
    ):
        run_check(reader, "oracle_evaluation", "perfect")


class Stammering:
    """Answers like the adapter it says that it is, but no reply keeps to the schema."""

    reads_case = False
    lanes = 1

    def __init__(self, identity: dict[str, Any]) -> None:
        self.identity = identity

    def respond(self, requests: Sequence[Request]) -> list[Completion]:
        return [Completion("{", "stop") for _ in requests]


def test_a_low_rate_in_the_smoke_is_a_hard_stop_that_says_what_it_means(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = smoke_rows(reader.dataset(reader.artifact("arena_sft_dataset")).rows("train"), reader.experiment.smoke.rows)

    def stammer(directory: Path) -> None:
        summary = read_json(directory / "smoke" / "summary.json")
        clear(directory / "smoke")
        provider = Stammering(summary["model"])
        score_split(directory / "smoke", rows, provider, step=summary["step"], batch_size=64)

    with replaced(reader, "overfit_smoke", stammer):
        assert run_check(reader, "overfit_smoke", "schema")["schema_valid"] == 0, "a rehearsal requires nothing"
        strict = reader.experiment.smoke.model_copy(update={"minimum_schema_valid": 0.99})
        experiment = reader.experiment.model_copy(update={"smoke": strict})
        monkeypatch.setitem(vars(reader), "experiment", experiment)
        with pytest.raises(ArenaError, match=r"0\.0000 of 32 replies .* a fault in the chat template or in the loss"):
            run_check(reader, "overfit_smoke", "schema")


def test_a_broken_dataset_fails_the_audit(reader: Reader) -> None:
    """A label that was changed with its id and the content hash: only solving the state again can find it."""
    from arena_pipeline.sft.manifest import DatasetManifest
    from arena_pipeline.sft.rows import Row, content_sha256

    def change(directory: Path) -> None:
        path = directory / "validation.jsonl"
        lines = path.read_text().splitlines()
        position = next(number for number, line in enumerate(lines) if '"phase": "ACT"' in line)
        body = json.loads(lines[position])
        label = "A1" if body["messages"][2]["content"] != '{"action_id":"A1"}' else "A0"
        texts = [message["content"] for message in body["messages"][:2]]
        row = Row.of(*texts, f'{{"action_id":"{label}"}}', body["metadata"])
        lines[position] = row.line().rstrip("\n")
        path.write_text("\n".join(lines) + "\n")
        files = [directory / f"{name}.jsonl" for name in ("train", "validation", "test")]
        ids = [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]
        manifest = read_json(directory / "manifest.json") | {"content_sha256": content_sha256(ids)}
        (directory / "manifest.json").write_text(DatasetManifest.from_dict(manifest, "manifest").text())

    with (
        replaced(reader, "arena_sft_dataset", change),
        pytest.raises(ArenaError, match=r"rules are broken, first: valid"),
    ):
        run_check(reader, "dataset_audit", "valid")


def test_a_changed_gate_policy_fails(reader: Reader) -> None:
    path = reader.project.root / "data" / "gates.toml"
    before = path.read_text()
    try:
        path.write_text(before.replace("0.995", "0.996"))
        with pytest.raises(ArenaError, match=r"gates\.toml: expected sha256"):
            run_check(reader, "frozen_manifest", "gate_policy")
    finally:
        path.write_text(before)
