"""What holds for every command: help with an example, exit statuses, errors in one line, light imports."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.main import get_command

from arena_pipeline.cli import application
from arena_pipeline.cli.project import find_project
from arena_pipeline.cli.screen import Screen, counted, printable
from arena_pipeline.errors import ConfigError
from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena, arena_process

LIGHT = {"torch", "transformers", "trl", "peft", "datasets", "dagster", "numba", "numpy", "sqlalchemy", "pydantic"}


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in getattr(group, "commands", {}).items():
        yield (*path, name)
        yield from commands(command, (*path, name))


COMMANDS = list(commands(get_command(application.app)))


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_every_command_has_help(arena: Arena, path: tuple[str, ...]) -> None:
    shown = arena(*path, "--help")
    assert shown.status == 0
    assert shown.out == arena(*path, "-h").out
    assert "Usage: arena" in shown.out
    if path == () or not any(other[: len(path)] == path and other != path for other in COMMANDS):
        assert "Example: arena" in shown.out, "a command's help ends with an example"
    assert "\\[" not in shown.out


def test_help_is_fast_and_imports_nothing_heavy() -> None:
    program = (
        f"import sys, arena_pipeline.cli.application as a\nprint(a.run(['--help']), {LIGHT!r} & sys.modules.keys())"
    )
    started = time.monotonic()
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert child.stdout.splitlines()[-1] == "0 set()", child.stderr
    # 0.3 s where nothing else runs; this machine may be busy with other tests.
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--wrong",), "No such option: --wrong (Possible options: --json); see arena --help"),
        (("wrong",), "No such command 'wrong'"),
        (("eval",), "Missing option '--provider'; see arena eval --help"),
        (("dataset", "build", "--out", "x", "--seeds", "0"), "'--seeds'"),
        (("dataset", "build", "--out", "x", "--seeds", "many"), "'--seeds'"),
        (("dataset", "wrong"), "see arena dataset --help"),
        (("compare", "one"), "see arena compare --help"),
    ],
)
def test_wrong_usage_is_one_line_that_names_the_help(arena: Arena, arguments: tuple[str, ...], message: str) -> None:
    outcome = arena(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert message in outcome.error


def test_the_project_is_found_from_a_folder_inside_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_project().root == project
    monkeypatch.delenv("ARENA_PROJECT_DIR")
    monkeypatch.delenv("ARENA_STORAGE_DIR")
    monkeypatch.chdir(project / "data" / "prompts")
    found = find_project()
    assert (found.root, found.storage) == (project, project / "storage")
    assert found.shown(Path("x.toml")) == "data/prompts/x.toml"
    assert found.shown(project.parent / "y") == str(project.parent / "y")
    # Elsewhere it is the clone that the package lies in.
    monkeypatch.chdir(project.parent)
    assert find_project().root == ROOT


def test_storage_becomes_absolute(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_STORAGE_DIR", "elsewhere")
    assert find_project().storage == Path.cwd() / "elsewhere"


def test_a_folder_that_is_no_project_is_named(arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(project / "data"))
    outcome = arena("pins", "verify")
    assert outcome.status == 2
    assert "no data/pins.toml is; name the folder of a clone" in outcome.error


def test_without_a_project_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ARENA_PROJECT_DIR", raising=False)
    monkeypatch.setattr("arena_pipeline.resources.locations._CLONE", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="go to the folder of a clone, or name it in ARENA_PROJECT_DIR"):
        find_project()


def test_faults_of_the_machine_are_one_line_too(arena: Arena, project: Path) -> None:
    outcome = arena("ledger", "export", project)
    assert outcome.status == 1
    assert "Is a directory" in outcome.error


def test_a_closed_pipe_is_no_fault(project: Path) -> None:
    command = f"{sys.executable} -c 'from arena_pipeline.cli import main; main()' pins verify | head -c 1"
    child = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in child.stderr


def test_text_from_files_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("\x1b[31m é\u202e\n") == "\\x1b[31m é\\u202e\n"
    Screen().line("[bold]not markup[/] \x1b[2J [/]")
    Screen().table(["[a]"], [["[red]\x1b[0m"], ["[/]"]])
    out = capsys.readouterr().out
    assert "[bold]not markup[/] \\x1b[2J [/]" in out
    assert "[red]\\x1b[0m" in out
    assert "\x1b" not in out


def test_one_and_many() -> None:
    assert [counted(number, "opening") for number in (0, 1, 2)] == ["0 openings", "1 opening", "2 openings"]


def test_what_is_for_a_person_goes_to_the_other_output_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=True)
    screen.line("for a person")
    screen.json({"b": 1, "a": [2]})
    assert capsys.readouterr() == ('{\n  "a": [\n    2\n  ],\n  "b": 1\n}\n', "for a person\n")


def test_no_bar_where_the_output_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen().progress() as progress:
        progress("work", 0, 0)
        progress("work", 3, 10)
    shown = capsys.readouterr()
    assert (shown.out.strip(), shown.err) == ("", "")


def in_a_terminal(*arguments: object, cwd: Path) -> str:
    """What a command writes where its outputs are a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    with subprocess.Popen(command, cwd=cwd, env=variables, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        chunks = []
        # Linux tells the end of a terminal's other side as an error.
        with suppress(OSError):
            while chunk := os.read(ours, 1 << 16):
                chunks.append(chunk)
    os.close(ours)
    return b"".join(chunks).decode()


def test_a_bar_where_the_output_is_a_terminal(project: Path) -> None:
    shown = in_a_terminal("dataset", "build", "--out", project / "mine", "--seeds", 600, cwd=project)
    assert "dataset seeds" in shown
    assert "/600" in shown
    assert "content hash" in shown


def test_a_bar_for_the_stage_that_is_running(project: Path) -> None:
    shown = in_a_terminal("run", "--experiment", "micro", "--until", "dataset_audit", cwd=project)
    assert "dataset_audit: dataset audit" in shown
    assert "computed: 2, reused: 0" in shown


def test_output_for_a_program_of_another_encoding(project: Path) -> None:
    shown = arena_process("experiment", "list", cwd=project, PYTHONIOENCODING="ascii")
    assert shown.status == 0
    assert "stage1" in shown.out


def test_ctrl_c_is_one_line_and_130(arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arena_pipeline.evaluation.runner.evaluate", stop)
    outcome = arena("eval", "--provider", "oracle", "--out", project / "out")
    assert outcome.status == 130
    assert outcome.error.endswith("stopped; run the same command again: it goes on after the last batch")


def test_ctrl_c_where_nothing_is_to_be_said_of_it(arena: Arena, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arena_pipeline.cli.pin_checks.check_manifests", stop)
    outcome = arena("manifest", "verify")
    assert (outcome.status, outcome.error) == (130, "arena: stopped")


def test_the_installed_script_exits_with_the_status() -> None:
    assert arena_process("pins", "verify", "--wrong", cwd=ROOT).status == 2
    assert arena_process("manifest", "verify", cwd=ROOT).status == 0
