"""Assets that are materialized one by one: nothing is read beside what it was not made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, AssetMaterialization, DagsterInstance, MaterializeResult, materialize

from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.errors import ArtifactError
from arena_pipeline.jobs import RESOURCES
from arena_pipeline.provenance.files import write_text
from arena_pipeline.resources.history import (
    DATA_VERSION_TAG,
    INPUTS,
    inputs_table,
    latest_materialization,
    require_current_inputs,
)
from arena_pipeline.resources.partitions import add_experiments
from arena_pipeline.resources.stage import Stage

EXPERIMENT = "tiny"
CONTENT = {"rows": "one"}


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as instance:
        add_experiments(instance, [EXPERIMENT, "other"])
        yield instance


def report(
    instance: DagsterInstance, asset: str, sha256: str, inputs: Mapping[str, str] | None = None, of: str = EXPERIMENT
) -> None:
    metadata = {INPUTS: inputs_table(inputs)} if inputs else {}
    tags = {DATA_VERSION_TAG: sha256}
    instance.report_runless_asset_event(AssetMaterialization(asset, partition=of, tags=tags, metadata=metadata))


def require(instance: DagsterInstance, *assets: str) -> None:
    latest = [latest_materialization(instance, asset, EXPERIMENT) for asset in assets]
    require_current_inputs(instance, latest, EXPERIMENT)


@pytest.fixture
def lineage(instance: DagsterInstance) -> DagsterInstance:
    """rows -> adapter, model -> adapter, adapter -> scores, adapter and scores -> choice."""
    report(instance, "rows", "r1")
    report(instance, "model", "m1")
    report(instance, "adapter", "a1", {"rows": "r1", "model": "m1"})
    report(instance, "scores", "s1", {"adapter": "a1"})
    report(instance, "choice", "c1", {"adapter": "a1", "scores": "s1"})
    return instance


def test_inputs_are_read_back_as_they_were_recorded(lineage: DagsterInstance) -> None:
    assert latest_materialization(lineage, "choice", EXPERIMENT).inputs == {"adapter": "a1", "scores": "s1"}
    assert latest_materialization(lineage, "rows", EXPERIMENT).inputs == {}
    require(lineage, "rows", "choice")


def test_an_input_that_was_replaced_is_named_with_what_to_materialize_again(lineage: DagsterInstance) -> None:
    report(lineage, "adapter", "a2", {"rows": "r1", "model": "m1"})
    require(lineage, "adapter")
    with pytest.raises(ArtifactError) as raised:
        require(lineage, "scores")
    assert str(raised.value) == (
        "scores, experiment tiny: made from adapter a1, which is now a2; materialize scores again"
    )
    report(lineage, "scores", "s2", {"adapter": "a2"})
    require(lineage, "scores")


def test_what_lies_further_back_counts_too_and_comes_first(lineage: DagsterInstance) -> None:
    report(lineage, "model", "m2")
    with pytest.raises(ArtifactError, match=r"^adapter, .*: made from model m1, .* m2; materialize adapter again$"):
        require(lineage, "choice")
    report(lineage, "adapter", "a2", {"rows": "r1", "model": "m2"})
    # Its first input alone would name it before the scores that it needs.
    with pytest.raises(ArtifactError, match="^scores, .*; materialize scores, then choice again$"):
        require(lineage, "choice")


def test_equal_bytes_are_the_same_input_however_often_they_are_made(lineage: DagsterInstance) -> None:
    report(lineage, "rows", "r2")
    report(lineage, "rows", "r1")
    report(lineage, "adapter", "a1", {"rows": "r1", "model": "m1"})
    require(lineage, "choice")


def test_another_experiments_artifacts_are_none_of_its_business(lineage: DagsterInstance) -> None:
    report(lineage, "rows", "r2", of="other")
    require(lineage, "choice")


@stage_asset(group="test", code_version="1", kinds={"python"})
def rows(stage: Stage) -> MaterializeResult[Any]:
    """The first input."""
    written = stage.obtain(lambda work: write_text(work.out / "rows", CONTENT["rows"]), config=CONTENT)
    return stage.materialize(written, {})


def join(stage: Stage, *names: str) -> MaterializeResult[Any]:
    text = "+".join(stage.inputs[name].file(name).read_text() for name in names)
    return stage.materialize(stage.obtain(lambda work: write_text(work.out / stage.asset, text), config={}), {})


@stage_asset(group="test", code_version="1", kinds={"python"}, inputs=["rows"])
def adapter(stage: Stage) -> MaterializeResult[Any]:
    """Made from the rows."""
    return join(stage, "rows")


@stage_asset(group="test", code_version="1", kinds={"python"}, inputs=["adapter"])
def scores(stage: Stage) -> MaterializeResult[Any]:
    """Made from the adapter."""
    return join(stage, "adapter")


@stage_asset(group="test", code_version="1", kinds={"python"}, inputs=["rows", "scores"])
def choice(stage: Stage) -> MaterializeResult[Any]:
    """Made from the scores, and from the rows that they go back to."""
    return join(stage, "rows", "scores")


@stage_asset(group="test", code_version="1", kinds={"python"}, after=["choice"])
def follower(stage: Stage) -> MaterializeResult[Any]:
    """Only comes after the choice."""
    return stage.materialize(stage.obtain(lambda work: write_text(work.out / "f", ""), config={}), {})


STAGES = [rows, adapter, scores, choice, follower]


def test_stages_that_are_materialized_one_by_one_refuse_a_mix(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARENA_STORAGE_DIR", str(tmp_path))

    def failure(asset: str) -> str:
        """Materialize one asset; what the step said if it failed."""
        result = materialize(
            STAGES,
            selection=[AssetKey(asset)],
            resources=RESOURCES,
            instance=instance,
            partition_key=EXPERIMENT,
            raise_on_error=False,
        )
        failed = [event.step_failure_data for event in result.all_events if event.is_step_failure]
        return str(failed[0].user_failure_data.description) if failed and failed[0].user_failure_data else ""

    names = [stage.key.to_user_string() for stage in STAGES]
    assert [failure(name) for name in names] == [""] * 5

    monkeypatch.setitem(CONTENT, "rows", "two")
    assert failure("rows") == ""
    assert failure("scores").startswith("adapter, experiment tiny: made from rows ")
    assert failure("choice").endswith("; materialize adapter again")
    assert failure("follower").endswith("; materialize adapter, then choice again")
    assert failure("adapter") == ""
    assert failure("choice").endswith("; materialize scores again")
    assert [failure(name) for name in ("scores", "choice", "follower")] == [""] * 3
