"""One step's work: its key, the artifact filed under it or computed now, and what Dagster records of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dagster import AssetExecutionContext, DataVersion, MaterializeResult, MetadataValue

from arena_pipeline.processes.protocol import OUTPUT
from arena_pipeline.provenance.artifacts import Artifact, stage_key
from arena_pipeline.resources.history import (
    INPUTS,
    inputs_table,
    latest_materialization,
    require_checks,
    require_current_inputs,
)
from arena_pipeline.resources.metadata import table
from arena_pipeline.resources.reader import Reader

_NO_HASHES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Work:
    """Directories of a computation that outlive a kill: ``out`` becomes the artifact, the rest of ``scratch`` goes."""

    scratch: Path
    out: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """An artifact and how it was come by: ``reused`` if it was there, else computed in ``seconds``."""

    artifact: Artifact
    reused: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Stage(Reader):
    """A ``Reader`` for the body of an asset: upstream artifacts that passed their checks, and a place for its own."""

    context: AssetExecutionContext
    asset: str
    code_version: str
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    """Upstream asset -> its artifact: what decides the result, together with the configuration and the code."""

    def with_inputs(self, assets: Sequence[str]) -> Stage:
        """This stage with the artifacts of ``assets`` as its inputs."""
        return replace(self, inputs={name: self.passed(name) for name in assets})

    def passed(self, asset: str) -> Artifact:
        """An upstream asset's artifact: its blocking checks passed on it, and all it was made from is the latest still.

        Raises ``EvaluationError`` or ``ArtifactError`` that says what to materialize again.
        """
        latest = latest_materialization(self.instance, asset, self.partition)
        require_checks(self.instance, latest, self.partition)
        require_current_inputs(self.instance, [latest], self.partition)
        return self.store.open(latest.artifact_sha256)

    def key(self, config: Any, external: Mapping[str, str] = _NO_HASHES) -> str:
        """The key of this stage's work; ``external`` maps inputs that are no artifacts to their SHA-256."""
        return stage_key(self.asset, inputs=self._hashes(external), config=config, code_version=self.code_version)

    def obtain(
        self, compute: Callable[[Work], None], *, config: Any, external: Mapping[str, str] = _NO_HASHES
    ) -> Outcome:
        """The artifact for this stage's key: the one that is filed, or what ``compute`` leaves in ``Work.out``.

        An interrupted computation finds its directories as it left them.
        """
        key, began = self.key(config, external), time.monotonic()
        if (found := self.store.find(self.asset, key)) is not None:
            self.context.log.info(f"reused: nothing to compute, all bytes verified (artifact {found.sha256})")
            return Outcome(found, True, 0.0)
        with self.store.work(self.asset, key) as scratch:
            if (found := self.store.find(self.asset, key)) is not None:
                return Outcome(found, True, 0.0)
            work = Work(scratch, scratch / OUTPUT)
            work.out.mkdir(exist_ok=True)
            compute(work)
            artifact = self.store.commit(
                self.asset,
                key,
                work.out,
                inputs=self._hashes(external),
                config=config,
                code_version=self.code_version,
            )
        return Outcome(artifact, False, time.monotonic() - began)

    def materialize(self, outcome: Outcome, metadata: Mapping[str, Any]) -> MaterializeResult[Any]:
        """What Dagster records: the artifact's hash as data version, and what a person would look for."""
        artifact = outcome.artifact
        sizes = {name: (artifact.path / name).stat().st_size for name in artifact.files}
        files = [
            {"file": name, "bytes": sizes[name], "sha256": sha256} for name, sha256 in sorted(artifact.files.items())
        ]
        common: dict[str, Any] = {
            "artifact_sha256": artifact.sha256,
            "reused": outcome.reused,
            "key": artifact.key,
            "files": table(files),
            "bytes": sum(sizes.values()),
            "path": MetadataValue.path(str(artifact.path)),
        }
        if inputs := self._hashes(_NO_HASHES):
            common[INPUTS] = inputs_table(inputs)
        if not outcome.reused:
            common["seconds"] = round(outcome.seconds, 3)
        return MaterializeResult(data_version=DataVersion(artifact.sha256), metadata={**common, **metadata})

    def _hashes(self, external: Mapping[str, str]) -> dict[str, str]:
        return {**{name: artifact.sha256 for name, artifact in self.inputs.items()}, **external}
