"""Locks between processes: the holder is named, waiting ends with it, and its death frees the lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from arena_pipeline.errors import LockHeld
from arena_pipeline.provenance.locks import exclusive_lock, lock_holder

HOLDER = """
import sys
from pathlib import Path
from arena_pipeline.provenance.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), "it"):
    print("holding", flush=True)
    sys.stdin.read()
"""


def test_a_second_taker_is_told_who_holds_the_lock_or_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "gpu-0.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=PIPE, stdout=PIPE, text=True)
    told: list[str] = []

    def end_the_holder(who: str) -> None:
        told.append(who)
        holder.kill()

    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with (
            pytest.raises(LockHeld, match=f"the GPU: in use by process {holder.pid} on "),
            exclusive_lock(path, "the GPU"),
        ):
            pass
        with exclusive_lock(path, "the GPU", on_wait=end_the_holder):
            assert len(told) == 1
            assert told[0].startswith(f"process {holder.pid} on ")
            assert lock_holder(path) != told[0]
    finally:
        holder.kill()
        holder.communicate()


def test_one_process_cannot_take_a_lock_twice_and_leaves_it_free(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    for _ in range(2):
        with (
            exclusive_lock(path, "it"),
            pytest.raises(LockHeld, match="it: in use by process"),
            exclusive_lock(path, "it"),
        ):
            pass
    assert "not yet written" in lock_holder(path)
