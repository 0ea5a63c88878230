"""What the warm parent has imported before it forks, and what it must not have done by then."""

from __future__ import annotations

import json
import subprocess
import sys

from arena_pipeline.processes.launcher import supervise
from arena_pipeline.processes.warm import PRELOADED
from arena_pipeline_tests.processes.programs import CHILDREN, environment

PROGRAM = """
import importlib, json, sys, threading
import torch
asked = []
for module, names in (
    (torch.cuda, ("_lazy_init", "current_device", "device_count", "get_device_capability", "is_available")),
    (torch.accelerator, ("current_device_index", "device_count", "is_available")),
):
    for name in names:
        assert hasattr(module, name)
        setattr(module, name, lambda *arguments, name=name: asked.append(name))
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps([asked, len(threading.enumerate()), torch.cuda.is_initialized()]))
"""


def test_the_imports_succeed_and_start_neither_threads_nor_a_gpu() -> None:
    """CUDA that has been initialised, if only to count devices, is unusable in a forked process (known trouble 30)."""
    command = [sys.executable, "-c", PROGRAM, *PRELOADED]
    child = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout.splitlines()[-1]) == [[], 1, False]


def test_a_child_finds_the_libraries_imported() -> None:
    ended = supervise(CHILDREN, ["surroundings"], environment(), lambda *_: None, print)
    assert ended.outcome["result"]["torch"] is True
