"""How every check is declared: blocking, partitioned like its asset, and computing again from bytes."""

import warnings
from collections.abc import Callable
from typing import Any

from dagster import AssetCheckExecutionContext, AssetCheckResult, AssetChecksDefinition, PreviewWarning, asset_check

from arena_pipeline.errors import ArenaError
from arena_pipeline.resources.partitions import EXPERIMENTS
from arena_pipeline.resources.progress import reporter
from arena_pipeline.resources.reader import Reader
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource

Body = Callable[[Reader], dict[str, Any]]

BODIES: dict[str, list[Body]] = {}
"""Asset -> what its checks compute, for whoever computes it outside Dagster (`arena gates`)."""


def blocking_check(asset: str, name: str) -> Callable[[Body], AssetChecksDefinition]:
    """Make a blocking check of a function that raises an ``ArenaError`` if what it recomputes is not what is saved.

    The function returns metadata for the person who looks at a check that passed; its docstring is the description.
    """

    def decorate(body: Body) -> AssetChecksDefinition:
        BODIES.setdefault(asset, []).append(body)

        def check(
            context: AssetCheckExecutionContext,
            project: ProjectResource,
            artifacts: ArtifactStoreResource,
            ledger: LedgerResource,
        ) -> AssetCheckResult:
            reader = Reader(
                project=project,
                artifacts=artifacts,
                ledger=ledger,
                instance=context.instance,
                partition=context.partition_key,
                progress=reporter(context.log),
            )
            try:
                found = body(reader)
            except ArenaError as error:
                return AssetCheckResult(passed=False, description=str(error))
            return AssetCheckResult(passed=True, metadata=found)

        with warnings.catch_warnings():
            # Dagster says of partitioned checks that they may change with a release; its release is pinned here.
            warnings.simplefilter("ignore", PreviewWarning)
            return asset_check(
                asset=asset, name=name, blocking=True, description=body.__doc__, partitions_def=EXPERIMENTS
            )(check)

    return decorate
