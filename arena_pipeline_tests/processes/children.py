"""A module for the launcher to run: ``children NAME`` is a child that does one thing, or dies in some way."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from arena_pipeline.processes.worker import Messages

messages = Messages(supervised=True)


def talk() -> None:
    messages.progress("work", 1, 2)
    print("printed", flush=True)
    os.write(2, b"no newline")
    messages.log("said é")
    messages.progress("work", 2, 2)
    messages.result({"answer": 42})


def talk_much() -> None:
    for number in range(20000):
        print("line", number)
    messages.result({})


def surroundings() -> None:
    """Tell what it was given, and change it."""
    messages.result(
        {
            "folder": str(Path.cwd()),
            "variable": os.environ.get("ARENA_TEST"),
            "seen before": hasattr(os, "seen_before"),
            "torch": "torch" in sys.modules,
        }
    )
    os.environ["ARENA_TEST"] = "changed by a child"
    setattr(os, "seen_before", True)  # noqa: B010


def leave_one() -> None:
    """Start a grandchild and name the whole line of processes: warm parent, guard, worker, grandchild."""
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    guard = os.getppid()
    warm = Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1]
    messages.log(f"started {warm} {guard} {os.getpid()} {grandchild.pid}")


def stay() -> None:
    leave_one()
    time.sleep(600)


def kill_guard() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def fail() -> None:
    raise RuntimeError("broken")


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    faulthandler.enable()
    ctypes.string_at(0)


def leave() -> None:
    sys.exit(7)


CHILDREN: Final[dict[str, Callable[[], None]]] = {
    child.__name__: child
    for child in (talk, talk_much, surroundings, leave_one, stay, kill_guard, fail, kill_itself, crash, leave)
}

if __name__ == "__main__":
    CHILDREN[sys.argv[1]]()
