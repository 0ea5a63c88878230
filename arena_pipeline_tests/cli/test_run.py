"""`arena run`, `arena` alone and `arena reap` on the inputs of the lineage; the whole of it in `test_whole_lineage`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.events import EngineEventData
from dagster._core.test_utils import create_run_for_test, instance_for_test

from arena_pipeline.cli.dead_runs import process_start, report_dead_runs
from arena_pipeline.cli.project import find_project
from arena_pipeline.errors import ConfigError
from arena_pipeline.provenance.hashing import sha256_file
from arena_pipeline.resources.instance import open_instance
from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena, Outcome
from arena_pipeline_tests.cli.models import add_experiment
from arena_pipeline_tests.cli.test_web import processes

INPUTS = ("run", "--experiment", "micro", "--until", "dataset_audit")
LARGE = ("num_seeds = 128", "num_seeds = 4000")


def row(outcome: Outcome, experiment: str) -> dict[str, str]:
    return next(entry for entry in outcome.json if entry["experiment"] == experiment)


def test_a_run_tells_each_stage_and_the_second_recomputes_nothing(arena: Arena, project: Path) -> None:
    untouched = arena("--json")
    assert row(untouched, "micro") == {
        "experiment": "micro",
        "stage": "not started",
        "verdict": "",
        "next": "arena run --experiment micro",
    }
    assert not (project / "storage").exists(), "looking makes no instance"

    first = arena(*INPUTS)
    assert (first.status, first.err) == (0, "")
    lines = first.out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [
        ["computed", "arena_sft_dataset"],
        ["computed", "dataset_audit"],
    ]
    assert all(line.endswith(" s") for line in lines[:2])
    assert lines[2].startswith("computed: 2, reused: 0, in ")
    assert lines[3] == "micro is there up to dataset_audit; `arena run` without --until goes on to the verdict"
    assert (project / "storage" / "history").is_dir()

    second = arena(*INPUTS)
    assert second.status == 0
    assert [line.split()[0] for line in second.out.splitlines()[:2]] == ["reused", "reused"]
    assert "nothing was recomputed: all 2 stages were there, every byte verified again" in second.out

    third = arena(*INPUTS, "--json")
    assert third.json["success"] is True
    assert (third.json["computed"], third.json["reused"]) == ([], ["arena_sft_dataset", "dataset_audit"])
    assert (third.json["verdict"], third.json["adapter_path"], third.json["failures"]) == (None, None, [])
    assert "reused    dataset_audit" in third.err

    standing = row(arena("--json"), "micro")
    assert (standing["stage"], standing["next"]) == ("2 of 21: dataset_audit", "arena run --experiment micro")
    shown = arena()
    assert "2 of 21: dataset_audit" in shown.out
    assert "arena ui opens the lineage" in shown.out
    none = arena("gates", "--experiment", "micro")
    assert none.status == 1
    assert none.error == "arena: experiment micro: no verdict yet; arena run --experiment micro comes to one"


def test_a_run_says_first_what_will_be_slow(
    arena: Arena, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("flags : avx2\n")
    monkeypatch.setattr("arena_pipeline.experiments.preflight._CPU_DESCRIPTION", cpu)
    add_experiment(project, "mine", "micro", ('precision = "float32"', 'precision = "bfloat16"'))
    first = arena("run", "--experiment", "mine", "--until", "dataset_audit").out.splitlines()[0]
    assert first.startswith("note      recipe.precision: this CPU has no bfloat16")


def test_a_changed_byte_stops_the_run_with_file_and_hashes(arena: Arena, project: Path) -> None:
    assert arena(*INPUTS).status == 0
    file = project / "data" / "arena_sft_micro" / "test.jsonl"
    expected = sha256_file(file)
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    stopped = arena(*INPUTS)
    assert stopped.status == 1
    assert stopped.out.splitlines()[0].split()[:2] == ["failed", "arena_sft_dataset"]
    first, last = stopped.err.splitlines()
    assert first.startswith(f"arena: arena_sft_dataset: {file}: expected sha256 {expected}, found {sha256_file(file)}")
    assert last.startswith("arena: micro failed after ")
    assert last.endswith("once that is mended, `arena run --experiment micro --until dataset_audit` goes on from there")
    assert row(arena("--json"), "micro")["stage"] == "2 of 21: dataset_audit; the last run did not finish"
    listed = arena(*INPUTS, "--json")
    assert (listed.status, listed.json["success"]) == (1, False)
    assert expected in listed.json["failures"][0]

    data[1000] ^= 1
    file.write_bytes(data)
    assert arena(*INPUTS).status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--experiment", "none"), "no file data/experiments/none.toml; there are: micro, stage1, tiny-cpu"),
        (("--experiment", "micro", "--until", "verdict"), "asset 'verdict': there is none of that name; allowed: "),
    ],
)
def test_wrong_names(arena: Arena, project: Path, arguments: tuple[str, ...], message: str) -> None:
    outcome = arena("run", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error


@contextmanager
def building(project: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own that has begun to build a dataset which takes long."""
    add_experiment(project, "mine", "micro", LARGE, ("arena_sft_micro", "mine"))
    command = [sys.executable, "-c", PROGRAM, "run", "--experiment", "mine", "--until", "dataset_audit"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not list(project.glob("data/.mine.partial/train.jsonl")):
            assert child.poll() is None, child.communicate()
        try:
            yield child
        finally:
            child.kill()


def test_ctrl_c_is_one_line_that_says_how_to_go_on(arena: Arena, project: Path, instance: DagsterInstance) -> None:
    with building(project) as child:
        child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=60)
    assert child.returncode == 130
    again = "arena run --experiment mine --until dataset_audit"
    assert error == f"arena: stopped; `{again}` goes on from here, no finished batch is lost\n"
    assert out.startswith("stopped   arena_sft_dataset")
    assert not list((project / "data").glob("*mine*"))
    assert arena("reap").out == "every run that has started is alive or has ended\n"
    (interrupted,) = instance.get_runs()
    assert interrupted.status is DagsterRunStatus.CANCELED
    (asked,) = instance.all_logs(interrupted.run_id, of_type=DagsterEventType.RUN_CANCELING)
    assert asked.message.startswith(
        "interrupted by Ctrl-C or a signal; `arena run --experiment mine` goes on from here"
    )

    add_experiment(project, "mine", "micro", ("arena_sft_micro", "mine"))
    assert arena("run", "--experiment", "mine", "--until", "dataset_audit").status == 0


def test_a_killed_run_is_reaped_by_the_next(arena: Arena, project: Path) -> None:
    with building(project) as child:
        assert row(arena("--json"), "mine")["stage"] == "not started, running"
        assert [number for number, parent, _ in processes() if parent == child.pid] == [], "none that could outlive it"
        child.kill()
        child.wait()
    assert row(arena("--json"), "mine")["stage"] == "not started, running", "Dagster cannot know"
    outcome = arena(*INPUTS)
    assert outcome.status == 0
    assert outcome.out.splitlines()[0].endswith(f"(mine): its process {child.pid} is gone; reported as failed")
    assert row(arena("--json"), "mine")["stage"] == "not started; the last run did not finish"


@pytest.fixture
def instance(project: Path) -> Iterator[DagsterInstance]:
    find_project().export()
    with open_instance() as opened:
        yield opened


def started_run(instance: DagsterInstance, process: int | None) -> DagsterRun:
    """A run that says that it is executed by a process."""
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED, tags={"dagster/partition": "mine"})
    if process is not None:
        instance.report_engine_event("Executing steps", run, EngineEventData.in_process(process))
    return run


def test_reap_reports_the_runs_of_processes_that_are_gone(arena: Arena, instance: DagsterInstance) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    alive, silent, dead = (started_run(instance, process) for process in (os.getpid(), None, gone.pid))
    shown = arena("reap")
    assert shown.out == f"run {dead.run_id} (mine): its process {gone.pid} is gone; reported as failed\n"
    assert arena("reap", "--json").json == []
    assert arena("reap").out == "every run that has started is alive or has ended\n"

    def status(run: DagsterRun) -> DagsterRunStatus:
        found = instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status

    assert status(dead) is DagsterRunStatus.FAILURE
    assert status(alive) is status(silent) is DagsterRunStatus.STARTED


def test_a_process_that_got_a_dead_ones_number_is_another(
    arena: Arena, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started_run(instance, os.getpid())
    monkeypatch.setattr("arena_pipeline.cli.dead_runs.process_start", lambda _: time.time() + 60)
    assert [entry["run_id"] for entry in arena("reap", "--json").json] == [run.run_id]


def test_reap_leaves_runs_on_other_machines_alone() -> None:
    elsewhere = {"run_launcher": {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}}
    with (
        instance_for_test(elsewhere) as instance,
        pytest.raises(ConfigError, match="launched by MockedRunLauncher, out"),
    ):
        report_dead_runs(instance)


def test_when_a_process_started() -> None:
    own = process_start(os.getpid())
    assert own is not None
    with subprocess.Popen(["sleep", "60"]) as child:
        later = process_start(child.pid)
        assert later is not None
        assert later >= own
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start(child.pid) is None, "it has ended, though nobody has waited for it"
    assert process_start(child.pid) is None
