"""How every asset of the lineage is declared: one partition per experiment, one artifact, errors in one line."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dagster import AssetExecutionContext, AssetsDefinition, Failure, MaterializeResult, asset

from arena_pipeline.errors import ArenaError
from arena_pipeline.resources.partitions import EXPERIMENTS
from arena_pipeline.resources.progress import reporter
from arena_pipeline.resources.stage import Stage
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource

OWNERS: Final = ("team:arena",)

Body = Callable[[Stage], MaterializeResult[Any]]


def stage_asset(
    *,
    group: str,
    code_version: str,
    kinds: set[str],
    inputs: Sequence[str] = (),
    after: Sequence[str] = (),
) -> Callable[[Body], AssetsDefinition]:
    """Make an asset of a function that takes a ``Stage``; its name and docstring are the asset's.

    ``inputs`` are the upstream assets whose artifacts decide the result, and so belong to its key; those of ``after``
    must only have been materialized and have passed their checks, because the specification's order says so.
    """

    def decorate(body: Body) -> AssetsDefinition:
        name = body.__name__

        def compute(
            context: AssetExecutionContext,
            project: ProjectResource,
            artifacts: ArtifactStoreResource,
            ledger: LedgerResource,
        ) -> MaterializeResult[Any]:
            stage = Stage(
                project=project,
                artifacts=artifacts,
                ledger=ledger,
                instance=context.instance,
                partition=context.partition_key,
                progress=reporter(context.log),
                context=context,
                asset=name,
                code_version=code_version,
            )
            try:
                for upstream in after:
                    stage.passed(upstream)
                return body(stage.with_inputs(inputs))
            except ArenaError as error:
                raise Failure(description=str(error), allow_retries=False) from error

        return asset(
            name=name,
            description=body.__doc__,
            group_name=group,
            code_version=code_version,
            kinds=kinds,
            owners=list(OWNERS),
            deps=[*inputs, *after],
            partitions_def=EXPERIMENTS,
        )(compute)

    return decorate
