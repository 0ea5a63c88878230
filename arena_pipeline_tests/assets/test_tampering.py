"""A changed byte stops the run before anything downstream, failed checks stop later runs, and kills lose nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, AssetCheckSeverity, AssetKey
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from arena_pipeline.arena.prompts import PromptPack
from arena_pipeline.assets import sealed
from arena_pipeline.evaluation.gates import Gate
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.resources.history import latest_materialization
from arena_pipeline.resources.progress import attach
from arena_pipeline_tests.lineages import EXPERIMENT, ROOT, Lineage, copy_of, flip_byte, materialized, report

FLIPS = {
    "data/arena_sft_micro/train.jsonl": ("arena_sft_dataset", "dataset_audit"),
    "data/arena_sft_micro/validation.jsonl": ("arena_sft_dataset", "dataset_audit"),
    "data/arena_sft_micro/test.jsonl": ("arena_sft_dataset", "prompts_in_use"),
    "data/arena_sft_micro/manifest.json": ("arena_sft_dataset", "dataset_audit"),
    "data/base_models/arena-tiny/model.safetensors": ("base_model", "overfit_smoke"),
    "data/base_models/arena-tiny/tokenizer.json": ("base_model", "base_dev_evaluation"),
    "data/gates.toml": ("frozen_manifest", "scripted_baselines"),
}


@pytest.mark.parametrize("place", FLIPS)
def test_a_flipped_byte_in_an_input_stops_before_anything_downstream(copy: Lineage, place: str) -> None:
    file = copy.root / place
    expected = sha256_file(file)
    flip_byte(file, file.stat().st_size // 2)
    asset, downstream = FLIPS[place]
    result = copy.run_only(asset, downstream)
    assert not result.success
    [failure] = result.failures
    assert failure.startswith(f"{asset}: ")
    assert f"{file}: expected sha256 {expected}, found {sha256_file(file)}" in failure
    assert result.computed == result.reused == []


def test_a_flipped_byte_in_the_prompts_stops_before_anything_downstream(copy: Lineage) -> None:
    file = copy.root / "data" / "prompts" / "arena-v2-open.toml"
    expected = PromptPack.load(file).sha256
    flip_byte(file, file.read_bytes().index(b"action_system") + 40)
    result = copy.run_only("arena_sft_dataset", "prompts_in_use")
    [failure] = result.failures
    assert f"{file}: expected sha256 {expected}, found {PromptPack.load(file).sha256}" in failure
    assert result.computed == result.reused == []


@pytest.mark.parametrize("asset", ["arena_sft_dataset", "lora_checkpoints", "sft_arena_evaluation"])
def test_a_flipped_byte_in_a_stored_artifact_stops_whatever_would_use_it(copy: Lineage, asset: str) -> None:
    artifact = materialized(copy, asset)
    name = max(artifact.files, key=lambda name: (artifact.path / name).stat().st_size)
    file = artifact.path / name
    flip_byte(file, file.stat().st_size // 2)
    downstream = {"arena_sft_dataset": "dataset_audit", "lora_checkpoints": "checkpoint_scores"}.get(
        asset, "gate_verdicts"
    )
    for assets in ((asset, downstream), (downstream,)):
        result = copy.run_only(*assets)
        [failure] = result.failures
        assert f"{file}: expected sha256 {artifact.files[name]}, found {sha256_file(file)}" in failure
        assert result.computed == result.reused == []


def test_a_changed_source_stops_a_body_that_is_run_alone(copy: Lineage) -> None:
    """The checks of the dataset passed in an earlier run; the body looks at the bytes again."""
    file = copy.root / "data" / "arena_sft_micro" / "validation.jsonl"
    flip_byte(file, 100)
    [failure] = copy.run_only("checkpoint_scores").failures
    assert str(file) in failure
    assert sha256_file(file) in failure


def test_the_whole_lineage_stops_at_a_changed_dataset(copy: Lineage) -> None:
    flip_byte(copy.root / "data" / "arena_sft_micro" / "train.jsonl", 1000)
    result = copy.run()
    [failure] = result.failures
    assert failure.startswith("arena_sft_dataset: ")
    inputs = {"frozen_manifest", "base_model", "machine_preflight", "scripted_baselines"}
    assert {*result.computed, *result.reused} == inputs, "what does not follow from the dataset"


def test_a_failed_check_stops_a_later_run_of_what_follows(copy: Lineage) -> None:
    """Dagster's blocking holds inside one run only (known trouble 41)."""
    with copy.instance() as instance:
        record = latest_materialization(instance, "checkpoint_scores", EXPERIMENT)
        failed = AssetCheckEvaluation(
            asset_key=AssetKey("checkpoint_scores"),
            check_name="recomputed",
            passed=False,
            metadata={},
            target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
                storage_id=record.storage_id, run_id="a later run", timestamp=0.0
            ),
            severity=AssetCheckSeverity.ERROR,
            description="a figure is off",
            blocking=True,
            partition=EXPERIMENT,
        )
        instance.report_runless_asset_event(failed)
    [failure] = copy.run_only("selected_checkpoint").failures
    assert failure == (
        "selected_checkpoint: checkpoint_scores, experiment micro: its check recomputed failed: a figure is off"
    )
    assert copy.run_only("checkpoint_scores", "selected_checkpoint").success, "checked again, it passes"


def test_a_materialization_without_its_check_is_not_used(copy: Lineage) -> None:
    with copy.instance() as instance:
        record = latest_materialization(instance, "oracle_evaluation", EXPERIMENT)
        report(instance, "oracle_evaluation", record.artifact_sha256)
    [failure] = copy.run_only("base_dev_evaluation").failures
    assert "oracle_evaluation, experiment micro: its check perfect did not run on its latest materialization" in failure


def test_the_smoke_is_not_trained_again_for_another_threshold(copy: Lineage) -> None:
    copy.edit_experiment("minimum_schema_valid = 0.0", "minimum_schema_valid = 0.5")
    assert copy.run_only("overfit_smoke").reused == ["overfit_smoke"]


def remove_from(lineage: Lineage, stage: str) -> None:
    """Forget an artifact, so that it is computed again."""
    for record in (lineage.storage / "artifacts" / "keys" / stage).iterdir():
        record.unlink()


INTERRUPTED_RUN = """
import os, signal, sys
from pathlib import Path
from arena_pipeline.resources.progress import attach
from arena_pipeline_tests.lineages import Lineage

root, asset, label, reached, name = sys.argv[1:]

def progress(shown, done, total):
    if shown == label and done == int(reached):
        os.kill(os.getpid(), getattr(signal, name))

with attach(progress):
    result = Lineage(Path(root)).run_only(asset)
sys.exit(0 if result.success else "; ".join(result.failures))
"""


def interrupted_run(lineage: Lineage, asset: str, label: str, reached: int, name: str) -> None:
    """Materialize an asset in a process that gets a signal when its progress is as far as ``reached``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "DAGSTER_"))}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", INTERRUPTED_RUN, str(lineage.root), asset, label, str(reached), name]
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=300)
    if name == "SIGKILL":
        assert killed.returncode == -signal.SIGKILL
    else:
        assert killed.returncode == 1
        assert f"{asset}: stopped by a signal; what it had finished is kept" in killed.stderr.decode()


def resumed_run(lineage: Lineage, asset: str, label: str) -> list[int]:
    """Materialize an asset to its end; the progress that it reported."""
    reports: list[tuple[str, int, int]] = []
    with attach(lambda *report: reports.append(report)):
        result = lineage.run_only(asset)
    assert result.failures == []
    assert result.computed == [asset]
    return [done for shown, done, _ in reports if shown == label]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_killed_in_mid_generation_a_run_loses_no_finished_batch(micro: Lineage, tmp_path: Path, name: str) -> None:
    lineage = copy_of(micro, tmp_path / "project")
    whole = materialized(lineage, "base_validation_scores").file("base/responses.jsonl").read_bytes()
    remove_from(lineage, "base_validation_scores")
    interrupted_run(lineage, "base_validation_scores", "replies", 64, name)

    [saved] = lineage.storage.glob("artifacts/work/base_validation_scores/*/output/base/responses.jsonl")
    finished = saved.read_bytes()
    assert finished.count(b"\n") == 2, "header and first batch are there, the second batch is not"
    assert whole.startswith(finished)

    replies = resumed_run(lineage, "base_validation_scores", "replies")
    assert replies[0] == 64, "the finished batch is not asked again"
    assert materialized(lineage, "base_validation_scores").file("base/responses.jsonl").read_bytes() == whole


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_killed_in_mid_training_a_run_goes_on_to_the_same_adapters(micro: Lineage, tmp_path: Path, name: str) -> None:
    lineage = copy_of(micro, tmp_path / "project")
    whole = materialized(lineage, "lora_checkpoints")
    remove_from(lineage, "lora_checkpoints")
    interrupted_run(lineage, "lora_checkpoints", "training", 2, name)
    [work] = lineage.storage.glob("artifacts/work/lora_checkpoints/*")
    assert (work / "output" / "checkpoints" / "step-000001" / "adapter_model.safetensors").is_file()

    assert 1 not in resumed_run(lineage, "lora_checkpoints", "training"), "the first step is not taken again"
    assert materialized(lineage, "lora_checkpoints").sha256 == whole.sha256


def test_a_result_opens_the_sealed_sets_only_if_the_gates_pass_on_development(
    micro: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("selected_checkpoint", "scripted_baselines", "base_dev_evaluation", "sft_dev_evaluation")
    with micro.reader() as reader:
        artifacts = {name: reader.artifact(name) for name in names}
        assert sealed.reason_to_stay_closed(reader, artifacts) == "", "a rehearsal rehearses the opening too"
        vars(reader)["experiment"] = reader.experiment.model_copy(update={"result": True})
        reason = sealed.reason_to_stay_closed(reader, artifacts)
        assert reason.endswith("did not pass on validation and on development cases, so nothing sealed was opened")
        assert {"unsupported_facts", "oracle_regret"} <= {*reason.partition(" did ")[0].split(", ")}

        gates = sealed.development_gates

        def all_pass(*evidence: Any) -> list[Gate]:
            return [dataclasses.replace(gate, status="passed") for gate in gates(*evidence)]

        monkeypatch.setattr(sealed, "development_gates", all_pass)
        assert sealed.reason_to_stay_closed(reader, artifacts) == ""


def test_the_sealed_sets_stay_closed_where_no_checkpoint_is_eligible(
    copy: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rates that a result must reach, two steps of training make nothing eligible."""
    from arena_pipeline.sft.selection import Eligibility

    monkeypatch.setattr("arena_pipeline.assets.training.REHEARSAL_ELIGIBILITY", Eligibility())
    for file in copy.storage.glob("ledger.sqlite*"):
        file.unlink()
    result = copy.run()
    assert result.failures == []
    assert result.success
    verdict = result.verdict
    assert verdict is not None
    assert not verdict["promoted"]
    assert verdict["selected_step"] is None
    assert verdict["judged_step"] in (1, 2)
    statuses = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    assert statuses["unsupported_facts"] == "failed"
    others = (
        "oracle_regret",
        "order_robustness",
        "test_confirmation",
        "communication_useful",
        "communication_semantic",
    )
    assert {statuses[name] for name in others} == {"not_evaluated"}
    assert verdict["test_openings"] == []
    assert copy.ledger_rows() == [], "nothing was opened"
    for asset in ("test_evaluation", "sft_arena_evaluation"):
        assert list(materialized(copy, asset).files) == ["closed.json"]
    assert "sealed.json" not in materialized(copy, "communication_comparison").files
    again = copy.run()
    assert again.computed == []
    assert again.verdict == verdict
