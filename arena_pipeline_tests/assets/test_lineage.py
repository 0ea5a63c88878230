"""The whole lineage, from pinned data to a verdict, run for real on the smallest experiment."""

from __future__ import annotations

from typing import Any

import pytest
from dagster import AssetKey, AssetRecordsFilter, DagsterInstance, TableMetadataValue

from arena_pipeline.assets import ALL_ASSETS
from arena_pipeline.errors import ConfigError, SealedSetRefused
from arena_pipeline.evaluation.gates import GATE_NAMES
from arena_pipeline.provenance.hashing import sha256_file, tree_sha256
from arena_pipeline.provenance.trees import hash_tree
from arena_pipeline.resources.history import BLOCKING_CHECKS
from arena_pipeline.resources.stage import Stage
from arena_pipeline_tests.lineages import EXPERIMENT, Lineage, materialized

ASSETS = [asset.key.to_user_string() for asset in ALL_ASSETS]
WITH_PLOT = (
    "dataset_audit",
    "scripted_baselines",
    "base_dev_evaluation",
    "base_validation_scores",
    "overfit_smoke",
    "lora_checkpoints",
    "checkpoint_scores",
    "selected_checkpoint",
    "communication_comparison",
    "gate_verdicts",
)


def event_of(instance: DagsterInstance, asset: str) -> Any:
    wanted = AssetRecordsFilter(asset_key=AssetKey(asset), asset_partitions=[EXPERIMENT])
    return instance.fetch_materializations(wanted, limit=1).records[0].asset_materialization


def test_the_first_run_computes_everything_and_comes_to_a_verdict(micro: Lineage) -> None:
    assert micro.first["failures"] == []
    assert micro.first["success"]
    assert sorted(micro.first["computed"]) == sorted(ASSETS)
    assert micro.first["reused"] == []
    verdict = micro.first["verdict"]
    assert [gate["name"] for gate in verdict["gates"]] == list(GATE_NAMES)
    assert all(gate["status"] in ("passed", "failed") for gate in verdict["gates"])
    assert not verdict["promoted"], "a rehearsal promotes nothing"
    assert verdict["opening"] == 1


def test_every_data_version_is_the_hash_of_the_bytes(micro: Lineage) -> None:
    with micro.reader() as reader:
        for asset in ASSETS:
            event = event_of(reader.instance, asset)
            artifact = reader.artifact(asset)
            assert event.tags["dagster/data_version"] == tree_sha256(hash_tree(artifact.path)), asset
            assert event.metadata["artifact_sha256"].value == artifact.sha256


def test_every_asset_records_what_a_person_would_look_for(micro: Lineage) -> None:
    with micro.instance() as instance:
        for asset in ASSETS:
            metadata = event_of(instance, asset).metadata
            assert isinstance(metadata["files"], TableMetadataValue), asset
            assert metadata["reused"].value is False
            assert metadata["seconds"].value > 0
            text = "".join(str(value.value) for value in metadata.values())
            assert len(text.encode()) < 600_000, f"{asset}: so much freezes the UI"
            assert ("data:image/png;base64," in text) or asset not in WITH_PLOT, asset


def test_the_ledger_names_what_the_opening_led_to(micro: Lineage) -> None:
    verdict = materialized(micro, "gate_verdicts")
    with micro.reader() as reader:
        [opening] = reader.ledger.ledger.openings()
    assert opening.complete
    assert opening.verdict_sha256 == sha256_file(verdict.file("verdict.json"))
    [listed] = micro.first["verdict"]["test_openings"]
    assert listed["adapter_sha256"] == opening.adapter_sha256 == micro.first["verdict"]["adapter_sha256"]


def test_the_card_says_what_the_adapter_is(micro: Lineage) -> None:
    card = materialized(micro, "adapter_card").file("README.md").read_text()
    verdict = micro.first["verdict"]
    for part in ("adapter_sha256", "base_sha256", "dataset_sha256", "manifest_sha256", "conclusion"):
        assert verdict[part] in card
    for name in GATE_NAMES:
        assert f"| {name} |" in card
    assert str(micro.root) not in card


def test_the_smoke_throws_its_weights_away(micro: Lineage) -> None:
    assert not [name for name in materialized(micro, "overfit_smoke").files if name.endswith(".safetensors")]
    assert not list((micro.storage / "artifacts" / "work").glob("*/*")), "nothing is left of finished work"


def test_a_second_run_computes_nothing_and_asks_no_model(copy: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("arena_pipeline.assets.model_work.run_task", no_process)
    rows = copy.ledger_rows()
    versions = {asset: materialized(copy, asset).sha256 for asset in ASSETS}
    again = copy.run()
    assert again.failures == []
    assert again.success
    assert again.computed == []
    assert sorted(again.reused) == sorted(ASSETS)
    assert again.verdict == copy.first["verdict"]
    assert copy.ledger_rows() == rows
    assert {asset: materialized(copy, asset).sha256 for asset in ASSETS} == versions
    with copy.instance() as instance:
        assert all(event_of(instance, asset).metadata["reused"].value for asset in ASSETS)


def test_until_an_asset_only_what_leads_to_it_is_materialized(copy: Lineage) -> None:
    result = copy.run(until="prompts_in_use")
    assert result.success
    assert sorted(result.reused) == ["arena_sft_dataset", "prompts_in_use"]
    assert result.verdict is None
    with pytest.raises(ConfigError, match=r"asset 'verdict': there is none of that name; allowed: adapter_card, "):
        copy.run(until="verdict")


def test_blocking_checks_are_those_that_bodies_require() -> None:
    from arena_pipeline.checks import ALL_CHECKS

    found: dict[str, set[str]] = {}
    for definition in ALL_CHECKS:
        for spec in definition.check_specs:
            assert spec.blocking
            found.setdefault(spec.asset_key.to_user_string(), set()).add(spec.name)
    assert found == {asset: set(names) for asset, names in BLOCKING_CHECKS.items()}


def test_a_recorded_result_that_is_gone_is_not_asked_for_again(copy: Lineage) -> None:
    """The ledger says that the opening is complete: without the recorded files there is no second look."""
    for record in (copy.storage / "artifacts" / "keys" / "sft_arena_evaluation").iterdir():
        record.unlink()
    result = copy.run()
    assert not result.success
    [failure] = result.failures
    assert "the recorded result of sft_arena_evaluation is not in" in failure
    assert "restore it there" in failure


def test_a_recorded_result_is_returned_whatever_code_would_file_it_elsewhere_now(
    copy: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version of a stage has other keys; what a sealed set said is known by its hashes."""
    sealed = ("test_evaluation", "sft_arena_evaluation", "gate_verdicts")
    before, rows = {asset: materialized(copy, asset).sha256 for asset in sealed}, copy.ledger_rows()
    key = Stage.key

    def later(stage: Stage, config: dict[str, Any], *external: Any) -> str:
        return key(stage, {"later": True, **config} if stage.asset in sealed else config, *external)

    monkeypatch.setattr(Stage, "key", later)
    result = copy.run_only(*sealed)
    assert result.failures == []
    assert sorted(result.reused) == sorted(sealed)
    assert {asset: materialized(copy, asset).sha256 for asset in sealed} == before
    assert copy.ledger_rows() == rows


def test_another_description_leaves_the_recorded_verdict_as_it_is(
    copy: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no part of the experiment's identity: the settings are written anew, beside the verdict on record."""

    def no_other_verdict(*arguments: Any) -> None:
        raise AssertionError("the recorded verdict stands")

    before, rows = materialized(copy, "gate_verdicts"), copy.ledger_rows()
    assert before.read_json("experiment.json")["recipe"]["rank"] == 4
    copy.edit_experiment("A rehearsal of the whole lineage in seconds", "A rehearsal")
    monkeypatch.setattr("arena_pipeline.assets.verdict.build_verdict", no_other_verdict)
    for expected in ("computed", "reused"):
        result = copy.run_only("gate_verdicts")
        assert result.failures == []
        assert getattr(result, expected) == ["gate_verdicts"]
    after = materialized(copy, "gate_verdicts")
    assert after.files["verdict.json"] == before.files["verdict.json"]
    assert after.read_json("experiment.json")["description"].startswith("A rehearsal,")
    assert copy.ledger_rows() == rows


def test_figures_of_an_old_adapter_are_not_read_beside_a_new_one(copy: Lineage) -> None:
    """Assets may be materialized one by one: scores of old checkpoints would select among new ones."""
    old = materialized(copy, "lora_checkpoints").sha256
    copy.edit_experiment("weight_decay = 0.01", "weight_decay = 0.02")
    assert copy.run_only("lora_checkpoints").computed == ["lora_checkpoints"]
    new = materialized(copy, "lora_checkpoints").sha256
    assert new != old
    [failure] = copy.run_only("selected_checkpoint").failures
    assert failure == (
        f"selected_checkpoint: checkpoint_scores, experiment micro: made from lora_checkpoints {old}, which is now "
        f"{new}; materialize checkpoint_scores again"
    )
    [failure] = copy.run_only("gate_verdicts").failures
    assert failure.endswith("; materialize checkpoint_scores, then selected_checkpoint again")
    assert copy.run_only("checkpoint_scores").computed == ["checkpoint_scores"]
    assert copy.run_only("selected_checkpoint").computed == ["selected_checkpoint"]


def test_another_adapter_is_refused_with_the_record_of_the_first(copy: Lineage) -> None:
    with copy.reader() as reader:
        [opening] = reader.ledger.ledger.openings()
        (copy.storage / "ledger.sqlite").unlink()
        for leftover in copy.storage.glob("ledger.sqlite-*"):
            leftover.unlink()
        first = reader.ledger.ledger.open(opening.sealed_set, opening.experiment_identity, "micro", "1" * 64, "run 1")
        with pytest.raises(SealedSetRefused):
            reader.ledger.ledger.require(opening.sealed_set, opening.experiment_identity, opening.adapter_sha256)
    result = copy.run()
    assert not result.success
    [failure] = result.failures
    assert failure.startswith("test_evaluation: ")
    for part in (first.adapter_sha256, first.opened_at, "run 1", opening.adapter_sha256, "it opens once"):
        assert part in failure
    assert not {"test_evaluation", "sft_arena_evaluation", "gate_verdicts"} & {*result.reused, *result.computed}
