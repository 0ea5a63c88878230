"""What a child process is started with, and who may have the GPU."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from arena_pipeline.errors import MachineError
from arena_pipeline.processes.environment import available_cores, child_environment
from arena_pipeline.processes.gpu import device_lock, lock_file, resolved_device
from arena_pipeline.provenance.locks import exclusive_lock


def test_a_child_is_offline_whatever_the_parents_environment_says() -> None:
    child = child_environment({"HF_HUB_OFFLINE": "0", "OMP_WAIT_POLICY": "ACTIVE", "KEPT": "yes"}, {"ADDED": "too"})
    assert (child["HF_HUB_OFFLINE"], child["HF_HUB_DISABLE_TELEMETRY"], child["OMP_WAIT_POLICY"]) == (
        "1",
        "1",
        "PASSIVE",
    )
    assert (child["KEPT"], child["ADDED"]) == ("yes", "too")
    assert (Path(child["PYTHONPATH"]) / "arena_pipeline" / "__init__.py").is_file()
    assert child_environment({"PYTHONPATH": "elsewhere"})["PYTHONPATH"].split(os.pathsep)[1] == "elsewhere"


def test_threads_are_the_cores_at_hand_unless_the_user_chose(tmp_path: Path) -> None:
    assert child_environment({"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert int(child_environment({})["OMP_NUM_THREADS"]) == min(available_cores(), 8)
    share, cores = tmp_path / "cpu.max", available_cores(tmp_path / "none")
    for content, expected in (
        ("max 100000", cores),
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("9900000 100000", cores),
    ):
        share.write_text(content)
        assert available_cores(share) == expected


def test_asking_for_a_missing_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (resolved_device("cpu"), resolved_device("auto")) == ("cpu", "cpu")
    with pytest.raises(MachineError, match="device cuda: this machine"):
        resolved_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (resolved_device("cpu"), resolved_device("auto"), resolved_device("cuda")) == ("cpu", "cuda", "cuda")


def test_a_held_gpu_is_waited_for_and_its_holder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARENA_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="some-uuid"))
    assert lock_file("GPU some-uuid").parent == tmp_path
    waiting, entered = threading.Event(), threading.Event()
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        waiting.set()

    def second() -> None:
        with device_lock("cuda", log):
            entered.set()

    with exclusive_lock(lock_file("GPU some-uuid"), "GPU some-uuid"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(30)
        assert not entered.is_set()
        with device_lock("cpu", log):
            assert lines == [f"waiting for GPU some-uuid, in use by process {os.getpid()} on {os.uname().nodename}"]
    thread.join(30)
    assert entered.is_set()
