"""dagster.yaml means what it says: every value that matters is read back from the loaded instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.instance.config import PoolGranularity

from arena_pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def load() -> DagsterInstance:
    return DagsterInstance.from_config(str(ROOT))


def test_everything_a_run_writes_lies_in_the_storage_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_STORAGE_DIR", str(tmp_path))
    with load() as instance:
        instance.add_dynamic_partitions("experiments", ["one"])
        assert instance.get_dynamic_partitions("experiments") == ["one"]
        assert instance.storage_directory() == str(tmp_path / "storage")
    assert list(tmp_path.glob("history/*.db"))
    with load() as again:
        assert again.get_dynamic_partitions("experiments") == ["one"]


def test_limits_and_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_STORAGE_DIR", str(tmp_path))
    with load() as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        concurrency = instance.get_concurrency_config()
        assert concurrency.pool_config.pool_granularity is PoolGranularity.OP
        assert concurrency.pool_config.default_pool_limit == 1
        queue = concurrency.run_queue_config
        assert queue is not None
        assert queue.max_concurrent_runs == 4
        assert queue.tag_concurrency_limits == [{"key": "arena/gpu", "value": "true", "limit": 1}]
        assert instance.run_monitoring_enabled
        assert instance.run_retries_max_retries == 0
        assert not instance.run_retries_retry_on_asset_or_op_failure


@pytest.mark.parametrize("value", [None, "", "storage"])
def test_a_shell_that_is_not_set_up_is_told_how_to_start(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARENA_STORAGE_DIR", raising=False)
    if value is not None:
        monkeypatch.setenv("ARENA_STORAGE_DIR", value)
    with pytest.raises(ConfigError, match="arena ui"):
        load()
