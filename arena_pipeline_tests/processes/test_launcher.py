"""The launcher: messages and output arrive, every way to die is told, and no process outlives its launcher."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena_pipeline.errors import DatasetError, IntegrityError, PinMismatch
from arena_pipeline.processes import child
from arena_pipeline.processes.launcher import Ended, supervise
from arena_pipeline.processes.protocol import error_line, handle, raised_error
from arena_pipeline_tests.processes.programs import CHILDREN, environment

DEADLINE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def warm_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[child.WarmParent]:
    """One of each test's own that imports nothing: most children here need nothing."""
    parent = child.WarmParent(())
    monkeypatch.setattr(child, "warm_parent", parent)
    yield parent
    parent.connection().close()


def supervised(name: str, log: list[str] | None = None, **variables: str) -> Ended:
    lines = [] if log is None else log
    return supervise(CHILDREN, [name], environment() | variables, lambda *_: None, lines.append)


def wait_for_end(*pids: int) -> None:
    """Wait until processes have ended, whoever's children they are."""
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([descriptor], [], [], DEADLINE_SECONDS)
        finally:
            os.close(descriptor)
        assert ready, f"process {pid} is still alive"


def started(line: str) -> list[int]:
    """The numbers that a child reported: of the warm parent, the guard, itself and its own child."""
    word, *pids = line.split()
    assert word == "started"
    return [int(pid) for pid in pids]


@contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of ``programs``, itself in a session of its own so that signals reach it alone."""
    command = [sys.executable, "-m", "arena_pipeline_tests.processes.programs", *arguments]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_messages_progress_and_output_arrive_apart() -> None:
    log: list[str] = []
    steps: list[tuple[str, int, int]] = []
    ended = supervise(CHILDREN, ["talk"], environment(), lambda *progress: steps.append(progress), log.append)
    assert (ended.outcome, ended.returned) == ({"result": {"answer": 42}}, 0)
    assert steps == [("work", 1, 2), ("work", 2, 2)]
    assert sorted(log) == sorted(["said é", *ended.tail])
    assert "".join(ended.tail).replace("\n", "") in ("printedno newline", "no newlineprinted")


def test_much_output_does_not_block_the_child() -> None:
    log: list[str] = []
    ended = supervised("talk_much", log)
    assert (ended.returned, len(log), log[-1]) == (0, 20000, "line 19999")
    assert len(ended.tail) == 40


def test_a_child_has_its_launchers_folder_and_variables_and_nothing_of_another_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        result = supervised("surroundings", ARENA_TEST=str(number)).outcome["result"]
        assert result == {"folder": str(folder), "variable": str(number), "seen before": False, "torch": False}


@pytest.mark.parametrize(
    ("death", "returned", "said"),
    [
        ("fail", 1, "RuntimeError: broken"),
        ("kill_itself", -signal.SIGKILL, ""),
        ("kill_guard", -signal.SIGKILL, ""),
        ("crash", -signal.SIGSEGV, "Segmentation fault"),
        ("leave", 7, ""),
    ],
)
def test_a_childs_death_is_told_with_its_last_words(death: str, returned: int, said: str) -> None:
    ended = supervised(death)
    assert ended.returned == returned
    assert said in "\n".join(ended.tail)


def test_what_a_child_leaves_behind_is_killed() -> None:
    log: list[str] = []
    assert supervised("leave_one", log).returned == 0
    _, *group = started(log[0])
    wait_for_end(*group)


def test_a_warm_parent_that_was_killed_is_replaced(warm_parent: child.WarmParent) -> None:
    assert supervised("talk").returned == 0
    assert warm_parent.process is not None
    warm_parent.process.kill()
    warm_parent.process.wait()
    assert supervised("talk").returned == 0


@pytest.mark.parametrize("launched_in", ["child", "step"])
@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_a_launcher_that_is_killed_or_interrupted(killer: signal.Signals, launched_in: str) -> None:
    """Known trouble 49. SIGKILL leaves the launcher no time for anything: the others must find out by themselves."""
    with program(launched_in) as launcher:
        assert launcher.stdout is not None
        pids = started(launcher.stdout.readline())
        assert len(pids) == 4
        for pid in pids:
            os.kill(pid, 0)
        launcher.send_signal(killer)
        launcher.wait(DEADLINE_SECONDS)
    wait_for_end(*pids)


def test_an_error_in_a_callback_kills_the_child() -> None:
    def stop(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match=r"started \d+ \d+ \d+ \d+") as raised:
        supervise(CHILDREN, ["stay"], environment(), lambda *_: None, stop)
    _, *group = started(str(raised.value))
    wait_for_end(*group)


def test_errors_of_the_project_keep_their_class_and_facts() -> None:
    outcome = handle(error_line(PinMismatch("a/file", "00", "11", "restore it")).encode(), lambda *_: None, print)
    error = raised_error(outcome["error"])
    assert type(error) is PinMismatch
    assert isinstance(error, IntegrityError)
    assert (str(error), error.file, error.found) == (
        str(PinMismatch("a/file", "00", "11", "restore it")),
        "a/file",
        "11",
    )
    plain = raised_error(handle(error_line(DatasetError("row 7")).encode(), lambda *_: None, print)["error"])
    assert (type(plain), str(plain)) == (DatasetError, "row 7")
