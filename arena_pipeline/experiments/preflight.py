"""Whether, and how well, this machine can run an experiment; no library that would use it is loaded to find out."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from arena_pipeline.experiments.experiment import Experiment

_GIB = 2**30
_MIB_PER_GIB = 2**10
_CONTROL_GROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_CPU_DESCRIPTION = Path("/proc/cpuinfo")
_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Any of these says that a CPU computes in bfloat16 itself: two names of x86, one of ARM."""
_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_NVIDIA_SMI_SECONDS = 60


@dataclass(frozen=True)
class Found:
    """What a machine has. ``gpus`` are (name, memory in GiB); ``cpu_flags`` are empty where the system names none."""

    memory_gib: float
    free_disk_gib: float
    gpus: tuple[tuple[str, float], ...] = ()
    cpu_flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Check:
    """One requirement: its name, what is required, what was found, and whether that is enough."""

    name: str
    required: str
    found: str
    ok: bool


def measure_machine(storage: Path) -> Found:
    """Measure this machine: its memory (or this container's share), the free disk below ``storage``, GPUs and CPU."""
    existing = next(path for path in (storage.absolute(), *storage.absolute().parents) if path.exists())
    return Found(_memory_bytes() / _GIB, shutil.disk_usage(existing).free / _GIB, _gpus(), _cpu_flags())


def check_machine(experiment: Experiment, root: Path, machine: Found) -> list[Check]:
    """Compare an experiment's needs with a machine that ``measure_machine`` described.

    The base model must be in its place below ``root``: nothing is downloaded during a run. Needs that are not stated
    are not listed.
    """
    needs = experiment.machine
    checks = [
        _at_least("memory", needs.minimum_memory_gib, machine.memory_gib),
        _at_least("free disk space", needs.minimum_disk_gib, machine.free_disk_gib),
    ]
    if needs.gpu:
        required = f"an NVIDIA GPU with {needs.minimum_gpu_memory_gib:g} GiB"
        found = ", ".join(f"{name} with {memory:.1f} GiB" for name, memory in machine.gpus) or "none"
        largest = max((memory for _, memory in machine.gpus), default=0.0)
        checks.append(Check("GPU", required, found, largest >= needs.minimum_gpu_memory_gib))
    config = Path(experiment.base_model.path) / "config.json"
    present = (root / config).is_file()
    checks.append(Check("base model", str(config), "present" if present else "no such file", present))
    return checks


def slow_settings(experiment: Experiment, machine: Found) -> list[str]:
    """What a machine can run, but slowly: a line for each setting, with what to change. No reason to refuse it."""
    device = experiment.serving.device
    on_cpu = device == "cpu" or (device == "auto" and not machine.gpus)
    if not on_cpu or not machine.cpu_flags or machine.cpu_flags & _BFLOAT16_FLAGS:
        return []
    settings = {"recipe.precision": experiment.recipe.precision, "serving.dtype": experiment.serving.dtype}
    return [
        f"{key}: this CPU has no bfloat16 arithmetic and imitates it, 3 to 20 times slower than float32; set {key} to "
        f'"float32" in a copy (arena experiment new NAME --from {experiment.name}), which is another experiment'
        for key, value in settings.items()
        if value == "bfloat16"
    ]


def _at_least(name: str, required: float, found: float) -> Check:
    return Check(name, f"{required:g} GiB", f"{found:.1f} GiB", found >= required)


def _memory_bytes() -> int:
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTROL_GROUP_LIMITS:
        # "max" says that there is no limit.
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            limits.append(int(text))
    return min(limits)


def _gpus() -> tuple[tuple[str, float], ...]:
    try:
        listing = subprocess.run(_NVIDIA_SMI, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        # No driver, or one that does not answer: no GPU that could be used.
        return ()
    return parse_gpu_list(listing.stdout)


def parse_gpu_list(text: str) -> tuple[tuple[str, float], ...]:
    """The GPUs in nvidia-smi's lines "name, memory in MiB"; a line without a number, of a shared GPU, is left out."""
    gpus = []
    for line in text.splitlines():
        name, _, memory = line.rpartition(",")
        if memory.strip().isdigit():
            gpus.append((name.strip(), int(memory) / _MIB_PER_GIB))
    return tuple(gpus)


def _cpu_flags() -> frozenset[str]:
    try:
        return parse_cpu_flags(_CPU_DESCRIPTION.read_text())
    except OSError:
        return frozenset()


def parse_cpu_flags(text: str) -> frozenset[str]:
    """What the first core in Linux's description of the CPUs can do: its "flags" (x86) or "Features" (ARM)."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()
