"""The environment of a child process: offline, without telemetry, with as many threads as this machine lends it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import arena_pipeline

_PACKAGE_PARENT: Final = Path(arena_pipeline.__file__).resolve().parents[1]
_CPU_SHARE: Final = Path("/sys/fs/cgroup/cpu.max")
_MOST_THREADS: Final = 8

FIXED: Final[Mapping[str, str]] = {
    # Nothing is asked of a network at run time; TRL would otherwise report its use.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Threads that wait must sleep: spinning ones beside another busy process make both crawl.
    "OMP_WAIT_POLICY": "PASSIVE",
    # Whether there is a GPU is asked of the driver's library: CUDA itself must not start before a fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # Repeatable sums on CUDA.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def available_cores(cpu_share: Path = _CPU_SHARE) -> int:
    """Cores that this process may use: those it is bound to, or fewer where its container has a smaller share."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_share.read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no control group, or "max": no limit
    return max(1, cores)


def child_environment(inherited: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables a child is started with; a number of threads that the user set is kept."""
    environment = {**inherited, **FIXED, **(extra or {})}
    # Past a few threads a small model gains nothing, and the sums' order would differ from machine to machine.
    environment.setdefault("OMP_NUM_THREADS", str(min(available_cores(), _MOST_THREADS)))
    # The child imports this very package, also where it is not installed.
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE_PARENT), *([path] if path else [])])
    return environment
