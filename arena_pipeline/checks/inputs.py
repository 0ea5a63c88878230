"""Pins and audit: every input is hashed again, the audit is made again."""

from __future__ import annotations

import json
from typing import Any

from arena_pipeline.assets.inputs import AUDIT_FILE
from arena_pipeline.checks.blocking import blocking_check
from arena_pipeline.errors import DatasetError, EvaluationError, PinMismatch
from arena_pipeline.provenance.hashing import canonical_json
from arena_pipeline.resources.reader import Reader
from arena_pipeline.sft.audit import audit_dataset


@blocking_check("arena_sft_dataset", "pins")
def dataset_pins(reader: Reader) -> dict[str, Any]:
    """The directory and the stored copy hold the same bytes, and their content hash is the pinned one."""
    source = reader.source_dataset()
    stored = reader.dataset(reader.artifact("arena_sft_dataset"))
    if source.content_sha256 != stored.content_sha256:
        raise PinMismatch(stored.directory, source.content_sha256, stored.content_sha256)
    return {"content_sha256": stored.content_sha256, "files": len(stored.file_hashes)}


@blocking_check("dataset_audit", "valid")
def audit_valid(reader: Reader) -> dict[str, Any]:
    """The audit, made again from bytes and seeds, breaks no rule and says what the saved one says."""
    artifact = reader.artifact("arena_sft_dataset")
    report = audit_dataset(artifact.path, recorded_hashes=artifact.files, progress=reader.progress)
    if not report.valid:
        first = report.failures[0]
        raise DatasetError(f"{len(report.failures)} rules are broken, first: {first}; repair or rebuild the dataset")
    saved = reader.artifact("dataset_audit")
    if saved.read_json(AUDIT_FILE) != json.loads(canonical_json(report.to_dict())):
        raise DatasetError(f"{saved.file(AUDIT_FILE)}: not what the audit of these bytes says; audit again")
    return {"num_examples": report.counts["num_examples"], "content_sha256": report.content_sha256}


@blocking_check("prompts_in_use", "pins")
def prompt_pins(reader: Reader) -> dict[str, Any]:
    """The prompts are those of the dataset's rows, and the pinned ones where their version is pinned."""
    pack = reader.prompts(reader.artifact("prompts_in_use"))
    carried = reader.dataset(reader.artifact("arena_sft_dataset")).prompts
    if carried != pack:
        raise PinMismatch("prompts_in_use", carried.sha256, pack.sha256, "the dataset's rows carry another text")
    return {"prompt_sha256": pack.sha256, "prompt_version": pack.version}


@blocking_check("frozen_manifest", "pins")
def manifest_pins(reader: Reader) -> dict[str, Any]:
    """Every case is generated again by rule; the manifests' hashes are the pinned ones."""
    artifact = reader.artifact("frozen_manifest")
    return {which: reader.recorded_manifest(artifact, which).sha256 for which in ("sealed", "development")}


@blocking_check("frozen_manifest", "gate_policy")
def gate_policy_pin(reader: Reader) -> dict[str, Any]:
    """The gate policy is the pinned one, and no threshold is looser than the specification's."""
    policy = reader.project.gate_policy()
    return {"policy_sha256": policy.sha256, "policy_version": policy.version}


@blocking_check("base_model", "pins")
def base_model_pins(reader: Reader) -> dict[str, Any]:
    """Every file of the base model is hashed again; the hash over them is the pinned one."""
    _, found = reader.source_base_model()
    recorded = reader.base_model(reader.artifact("base_model")).sha256
    if recorded != found:
        raise EvaluationError(f"base_model: recorded {recorded}, found {found}; materialize base_model again")
    return {"base_sha256": found}
