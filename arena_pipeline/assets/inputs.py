"""[inputs] What everything else follows from: each input verified against its pin, from its bytes."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dagster import MaterializeResult

from arena_pipeline.assets.stages import stage_asset
from arena_pipeline.errors import MachineError, PinMismatch
from arena_pipeline.experiments import check_machine, measure_machine
from arena_pipeline.provenance.files import write_json
from arena_pipeline.resources.locations import storage_directory
from arena_pipeline.resources.metadata import fenced, markdown, plot, table
from arena_pipeline.resources.reader import (
    BASE_MODEL_FILE,
    MANIFESTS_FILE,
    PROMPTS_FILE,
    dataset_name,
    manifest_record,
)
from arena_pipeline.resources.stage import Stage, Work
from arena_pipeline.sft.audit import audit_dataset
from arena_pipeline.sft.builder import build_dataset
from arena_pipeline.sft.loading import Dataset, load_dataset
from arena_pipeline.sft.splits import SPLITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AUDIT_FILE = "audit.json"
PREFLIGHT_FILE = "preflight.json"


@stage_asset(group="inputs", code_version="dataset-1", kinds={"python", "json"})
def arena_sft_dataset(stage: Stage) -> MaterializeResult[Any]:
    """Training, validation and test rows, by their content hash.

    The directory that the experiment names is used as it is if it holds a dataset, whoever brought it; else the dataset
    is built there. Everything downstream reads the copy in the artifact store.
    """
    choice = stage.experiment.dataset
    directory = stage.project.root / choice.directory
    if (stage.project.root / choice.prompts).is_file():
        stage.project.prompt_pack(choice.prompts)
    if not directory.is_dir() or not any(directory.iterdir()):
        _build(stage)
    dataset = stage.source_dataset()

    def copy(work: Work) -> None:
        for name in dataset.file_hashes:
            (work.out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(directory / name, work.out / name)

    external = {f"file {name}": sha256 for name, sha256 in dataset.file_hashes.items()}
    outcome = stage.obtain(copy, config={}, external=external)
    return stage.materialize(outcome, _describe_dataset(dataset, stage))


def _build(stage: Stage) -> None:
    """Build the dataset in its place, and record its files in the stead of what was recorded of that place before."""
    choice, pins = stage.experiment.dataset, stage.project.pins
    directory = stage.project.root / choice.directory
    pack = stage.project.prompt_pack(choice.prompts)
    # One process: the manifest notes their number, and is to be the same on every machine.
    build_dataset(directory, pack, choice.num_seeds, choice.start_seed, workers=1, progress=stage.progress)
    dataset = load_dataset(directory)
    name = dataset_name(dataset, stage.experiment)
    pins.expect("datasets", name, dataset.content_sha256, directory, allow_new=True)
    stage.project.recorded_pins.record("datasets", choice.directory, name, dataset.content_sha256, dataset.file_hashes)


def _describe_dataset(dataset: Dataset, stage: Stage) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for split in SPLITS:
        phases = Counter(row.phase for row in dataset.rows(split))
        rows.append(
            {"split": split, "rows": len(dataset.rows(split)), "ACT": phases["ACT"], "BROADCAST": phases["BROADCAST"]}
        )
    name = dataset_name(dataset, stage.experiment)
    return {
        "content_sha256": dataset.content_sha256,
        "rows": table(rows),
        "num_examples": sum(row["rows"] for row in rows),
        "layout": dataset.layout,
        "directory": stage.experiment.dataset.directory,
        "pinned_as": name if name in stage.project.pins.datasets else "not pinned: held to its first load",
    }


@stage_asset(group="inputs", code_version="audit-1", kinds={"python"}, inputs=["arena_sft_dataset"])
def dataset_audit(stage: Stage) -> MaterializeResult[Any]:
    """The audit of every row, judged from bytes and seeds, independently of whatever built the dataset."""
    artifact = stage.inputs["arena_sft_dataset"]
    stage.dataset(artifact)

    def audit(work: Work) -> None:
        report = audit_dataset(artifact.path, recorded_hashes=artifact.files, progress=stage.progress)
        write_json(work.out / AUDIT_FILE, report.to_dict())

    outcome = stage.obtain(audit, config={})
    report = outcome.artifact.read_json(AUDIT_FILE)
    kinds = report["action_kinds_by_split"]

    def draw(axes: Axes) -> None:
        names = list(report["action_kinds"])
        bottoms = [0] * len(names)
        for split, counts in kinds.items():
            heights = [counts.get(name, 0) for name in names]
            axes.bar(names, heights, bottom=bottoms, label=split)
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        axes.set_ylabel("ACT rows")
        axes.legend(frameon=False)

    return stage.materialize(
        outcome,
        {
            "failures": len(report["failures"]),
            "first_failures": table([dict(failure) for failure in report["failures"]]),
            "content_sha256": report["content_sha256"],
            "num_examples": report["num_examples"],
            "verified_solver_seeds": report["verified_solver_seeds"],
            "action_kinds": table([{"split": split, **counts} for split, counts in kinds.items()]),
            "action_kinds_by_split": plot("What the ACT labels choose", draw),
        },
    )


@stage_asset(group="inputs", code_version="prompts-1", kinds={"json"}, inputs=["arena_sft_dataset"])
def prompts_in_use(stage: Stage) -> MaterializeResult[Any]:
    """The prompt texts that the dataset's own rows carry; training and evaluation use these and no other."""
    pack = stage.dataset(stage.inputs["arena_sft_dataset"]).prompts
    source = stage.project.root / stage.experiment.dataset.prompts
    stage.project.pins.expect("prompt_packs", pack.version, pack.sha256, "the dataset's rows", allow_new=True)
    if source.is_file():
        written = stage.project.prompt_pack(stage.experiment.dataset.prompts)
        if written.version == pack.version and written.sha256 != pack.sha256:
            raise PinMismatch(source, pack.sha256, written.sha256, "the dataset's rows carry another text")
    outcome = stage.obtain(lambda work: write_json(work.out / PROMPTS_FILE, asdict(pack)), config={})
    text = "\n\n".join(f"**{name}**\n\n{fenced(value)}" for name, value in asdict(pack).items())
    return stage.materialize(
        outcome, {"prompt_version": pack.version, "prompt_sha256": pack.sha256, "texts": markdown(text)}
    )


@stage_asset(group="inputs", code_version="manifest-1", kinds={"json"})
def frozen_manifest(stage: Stage) -> MaterializeResult[Any]:
    """The cases that are played, sealed and for development, generated by rule and held to their pins.

    The gate policy is held to its pin here too: nothing is computed under one that was changed.
    """
    manifests = {which: stage.manifest(which) for which in ("sealed", "development")}
    policy = stage.project.gate_policy()
    record = {which: manifest_record(manifest) for which, manifest in manifests.items()}
    outcome = stage.obtain(
        lambda work: write_json(work.out / MANIFESTS_FILE, record),
        config={},
        external={which: manifest.sha256 for which, manifest in manifests.items()},
    )
    listing = [
        {"manifest": which, "name": manifest.name, "cases": len(manifest.cases), "sha256": manifest.sha256}
        for which, manifest in manifests.items()
    ]
    return stage.materialize(
        outcome,
        {"manifests": table(listing), "policy_version": policy.version, "policy_sha256": policy.sha256},
    )


@stage_asset(group="inputs", code_version="base-model-1", kinds={"huggingface"})
def base_model(stage: Stage) -> MaterializeResult[Any]:
    """The untouched base model, by the hash over all its files; the files themselves stay where they are."""
    files, sha256 = stage.source_base_model()
    choice = stage.experiment.base_model
    record = {"name": choice.name, "sha256": sha256, "files": files}
    outcome = stage.obtain(
        lambda work: write_json(work.out / BASE_MODEL_FILE, record),
        config={"name": choice.name},
        external={f"file {name}": found for name, found in files.items()},
    )
    directory = stage.project.root / choice.path
    listing = [
        {"file": name, "bytes": (directory / name).stat().st_size, "sha256": found} for name, found in files.items()
    ]
    pinned = choice.name in stage.project.pins.base_models
    return stage.materialize(
        outcome,
        {
            "base_sha256": sha256,
            "name": choice.name,
            "model_files": table(listing),
            "pinned": "yes" if pinned else "no: held to its first load",
        },
    )


@stage_asset(group="inputs", code_version="preflight-1", kinds={"python"})
def machine_preflight(stage: Stage) -> MaterializeResult[Any]:
    """Whether this machine has what the experiment says that it needs; nothing long starts on one that lacks it."""
    checks = check_machine(stage.experiment, stage.project.root, measure_machine(storage_directory()))
    missing = [f"{check.name}: {check.required} required, {check.found} found" for check in checks if not check.ok]
    if missing:
        raise MachineError(f"{'; '.join(missing)}; use a larger machine, or an experiment that needs less")
    # What was found changes from one minute to the next and is no content; what was required and met is.
    met = [{"name": check.name, "required": check.required} for check in checks]
    outcome = stage.obtain(lambda work: write_json(work.out / PREFLIGHT_FILE, met), config={"met": met})
    return stage.materialize(outcome, {"requirements": table([asdict(check) for check in checks])})
