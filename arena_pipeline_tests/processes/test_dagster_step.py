"""A task launched in a Dagster step. No deferred annotations here: Dagster reads the context's class from them."""

from pathlib import Path

from dagster import AssetExecutionContext, DagsterInstance, MaterializeResult, asset, materialize

from arena_pipeline.processes.launcher import run_task
from arena_pipeline_tests.processes.conftest import Inputs


def test_the_childs_log_is_the_steps(inputs: Inputs, tmp_path: Path) -> None:
    @asset
    def stage(context: AssetExecutionContext) -> MaterializeResult:
        payload = inputs.train(steps=1, checkpoints=1)
        # A single step cannot begin with a warm-up, whose first learning rate is 0.
        payload["recipe"] |= {"warmup_steps": 0}
        done = run_task("train", payload, tmp_path, dagster_context=context)
        return MaterializeResult(metadata={"trainable": done["trainable"]})

    with DagsterInstance.ephemeral() as instance:
        result = materialize([stage], instance=instance)
        messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert result.asset_materializations_for_node("stage")[0].metadata["trainable"].value > 0
    assert any(message.startswith("step 1/1: loss ") for message in messages)
