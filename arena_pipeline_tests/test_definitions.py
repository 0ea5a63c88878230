"""The asset graph as a text that reviews can read, and what no asset or check may be or have."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import (
    AssetKey,
    AssetsDefinition,
    DagsterInstance,
    DefaultSensorStatus,
    SensorResult,
    SkipReason,
    build_sensor_context,
)

from arena_pipeline.definitions import defs
from arena_pipeline.jobs import GPU_TAG, JOB_NAME, experiments_sensor, run_tags
from arena_pipeline.resources.partitions import EXPERIMENTS, add_experiments

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = Path(__file__).with_name("asset_graph.txt")
GRAPH = defs.resolve_asset_graph()
ASSETS = {key.to_user_string(): GRAPH.get(key) for key in GRAPH.toposorted_asset_keys}


def describe_graph() -> str:
    """Every asset with its group, partitions, code version, inputs and blocking checks, upstream first."""
    lines = []
    for name in sorted(ASSETS, key=lambda name: (ASSETS[name].group_name, name)):
        node = ASSETS[name]
        lines.append(f"[{node.group_name}] {name}")
        lines.append(f"    partitions: {node.partitions_def.name}   code: {node.code_version}")
        lines.append(
            f"    depends on: {', '.join(sorted(key.to_user_string() for key in node.parent_keys)) or 'nothing'}"
        )
        lines.append(f"    checks: {', '.join(sorted(key.name for key in node.check_keys)) or 'none'}")
    return "\n".join(lines) + "\n"


def upstream_of(asset: str) -> set[str]:
    found: set[str] = set()
    waiting = [asset]
    while waiting:
        for key in ASSETS[waiting.pop()].parent_keys:
            if key.to_user_string() not in found:
                found.add(key.to_user_string())
                waiting.append(key.to_user_string())
    return found


def test_the_graph_is_the_committed_one() -> None:
    found = describe_graph()
    if os.environ.get("WRITE_ASSET_GRAPH"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text(), "changed on purpose? WRITE_ASSET_GRAPH=1 pytest writes it anew"


def test_everything_is_partitioned_by_experiment() -> None:
    for name, node in ASSETS.items():
        assert node.partitions_def == EXPERIMENTS, name
    for key in GRAPH.asset_check_keys:
        assert GRAPH.get_check_spec(key).partitions_def == EXPERIMENTS, key


def test_every_check_blocks() -> None:
    assert all(GRAPH.get_check_spec(key).blocking for key in GRAPH.asset_check_keys)


def test_every_asset_is_described_and_owned() -> None:
    for name, node in ASSETS.items():
        assert len(node.description or "") > 40, name
        assert node.owners == ["team:arena"], name
        assert node.kinds, name
        assert node.code_version, name


def test_nothing_starts_or_repeats_by_itself() -> None:
    """A sealed set is never opened by a schedule, nor a failed step tried again without somebody reading why."""
    for definition in defs.resolve_all_asset_specs():
        assert definition.automation_condition is None, definition.key
    for definition in defs.assets or ():
        assert isinstance(definition, AssetsDefinition)
        assert definition.op.retry_policy is None, definition.keys
        assert definition.op.pool is None, definition.keys
    assert not list(defs.schedules or ())


def test_steps_of_a_run_take_turns() -> None:
    """Few writers at once in the event log (known trouble 45), and the cores are not shared by two models."""
    for name in (JOB_NAME, "__ASSET_JOB"):
        assert defs.resolve_job_def(name).executor_def.name == "in_process"


def test_a_checkpoint_is_chosen_without_the_test_split() -> None:
    """Known trouble 39; and what is sealed is opened only after everything that development looks at."""
    before = upstream_of("selected_checkpoint")
    assert not before & {"test_evaluation", "sft_arena_evaluation", "communication_comparison", "gate_verdicts"}
    assert {"selected_checkpoint", "sft_dev_evaluation", "overfit_smoke"} <= upstream_of("test_evaluation")
    assert "test_evaluation" in upstream_of("sft_arena_evaluation")


def test_the_order_of_the_specification_is_in_the_graph() -> None:
    steps = [
        {"dataset_audit", "prompts_in_use", "frozen_manifest", "base_model", "scripted_baselines", "oracle_evaluation"},
        {"base_arena_evaluation", "base_validation_scores", "base_dev_evaluation"},
        {"overfit_smoke"},
        {"lora_checkpoints"},
        {"checkpoint_scores"},
        {"selected_checkpoint"},
        {"test_evaluation"},
        {"sft_arena_evaluation"},
        {"communication_comparison"},
        {"gate_verdicts"},
    ]
    for earlier, later in itertools.pairwise(steps):
        for asset in later:
            assert earlier <= upstream_of(asset), asset


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data" / "experiments"
    folder.mkdir(parents=True)
    for name in ("stage1", "micro"):
        (folder / f"{name}.toml").write_bytes((ROOT / "data" / "experiments" / f"{name}.toml").read_bytes())
    (tmp_path / "data" / "pins.toml").write_bytes((ROOT / "data" / "pins.toml").read_bytes())
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        yield instance


def test_the_sensor_adds_a_partition_for_each_new_file_and_keeps_old_ones(
    project: Path, instance: DagsterInstance
) -> None:
    assert experiments_sensor.default_status is DefaultSensorStatus.RUNNING
    add_experiments(instance, ["gone"])

    def tick() -> object:
        return experiments_sensor(build_sensor_context(instance=instance))

    result = tick()
    assert isinstance(result, SensorResult)
    [request] = result.dynamic_partitions_requests or []
    assert request.partitions_def_name == "experiments"
    assert sorted(request.partition_keys) == ["micro", "stage1"]
    assert result.run_requests in (None, []), "opening the UI starts nothing"
    assert add_experiments(instance, ["micro", "stage1"]) == ["micro", "stage1"]
    assert add_experiments(instance, ["micro", "stage1"]) == []
    assert isinstance(tick(), SkipReason)
    assert sorted(instance.get_dynamic_partitions("experiments")) == ["gone", "micro", "stage1"]


def test_runs_of_an_experiment_with_a_gpu_carry_the_tag_that_the_queue_limits(
    project: Path, instance: DagsterInstance
) -> None:
    assert run_tags("stage1") == {GPU_TAG: "true"}
    assert run_tags("micro") == {}
    assert run_tags("deleted") == {}
    add_experiments(instance, ["stage1", "micro"])
    result = defs.resolve_job_def(JOB_NAME).execute_in_process(
        instance=instance,
        partition_key="stage1",
        asset_selection=[AssetKey("machine_preflight")],
        raise_on_error=False,
    )
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[GPU_TAG] == "true"


def test_loading_the_definitions_needs_no_project_and_no_storage(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "DAGSTER_"))} | {
        "PYTHONPATH": str(ROOT),
        "ARENA_PROJECT_DIR": str(tmp_path / "nowhere"),
    }
    program = "import arena_pipeline.definitions as d; print(len(d.defs.resolve_asset_graph().get_all_asset_keys()))"
    child = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == str(len(ASSETS))
    assert list(tmp_path.iterdir()) == []
