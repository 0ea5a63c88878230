"""One process at a time on a GPU, by a lock that the operating system frees with its holder (design, "Processes")."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena_pipeline.errors import MachineError
from arena_pipeline.processes.protocol import Log
from arena_pipeline.provenance.locks import exclusive_lock


def resolved_device(asked: str) -> str:
    """``cpu`` or ``cuda`` for ``cpu``, ``cuda`` or ``auto``; ``MachineError`` where CUDA is asked for and absent."""
    if asked == "cpu":
        return "cpu"
    import torch

    available = torch.cuda.is_available()
    if asked == "cuda" and not available:
        raise MachineError(
            "device cuda: this machine, or this build of torch, has no usable NVIDIA GPU; use cpu or auto"
        )
    return "cuda" if available else "cpu"


@contextmanager
def device_lock(device: str, log: Log) -> Iterator[None]:
    """Have the GPU alone while the block runs, waiting for its holder if need be; nothing to wait for on a CPU."""
    if device == "cpu":
        yield
        return
    import torch

    name = f"GPU {torch.cuda.get_device_properties(0).uuid}"
    with exclusive_lock(lock_file(name), name, lambda holder: log(f"waiting for {name}, in use by {holder}")):
        yield


def lock_file(name: str) -> Path:
    """Where a device's lock lies: the same for every instance on this machine, unless ARENA_LOCK_DIR says otherwise."""
    directory = os.environ.get("ARENA_LOCK_DIR") or tempfile.gettempdir()
    return Path(directory) / f"arena-{name.replace(' ', '-')}.lock"
