"""Every `console` block of docs/*.md runs as it stands, exits as it says and prints what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arena_pipeline_tests.conftest import MICRO_SECONDS
from arena_pipeline_tests.lineages import Lineage, copy_of, micro

__all__ = ["micro"]

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FRESH, FINISHED = "a fresh project", "a finished lineage of micro"
PLACE = re.compile(r"<!-- console blocks below run in: (.*) -->")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXITS = re.compile(r"\s+# exits (\d+)\b.*$")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@dataclass
class Command:
    """A command as a page shows it: its text, the exit status that it states, and lines of its output."""

    text: str
    status: int = 0
    shown: list[str] = field(default_factory=list)

    def missing(self, output: str) -> list[str]:
        """The lines shown that the output does not hold, in their order."""
        position = 0
        for number, line in enumerate(self.shown):
            pattern = r"[^\n]*".join(map(re.escape, (part.strip() for part in line.split("..."))))
            found = re.compile(pattern).search(output, position)
            if found is None:
                return self.shown[number:]
            position = found.end()
        return []


def commands(page: str) -> list[Command]:
    found: list[Command] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                text = line.removeprefix("$ ")
                exits = EXITS.search(text)
                found.append(Command(EXITS.sub("", text), int(exits[1]) if exits else 0))
            else:
                found[-1].shown.append(line)
    return found


def write_script(directory: Path) -> None:
    """`arena`, as installing the project puts it on the path."""
    directory.mkdir()
    script = directory / "arena"
    script.write_text(f"#!{sys.executable}\nfrom arena_pipeline.cli import main\nmain()\n")
    script.chmod(0o755)


def fresh_project(root: Path) -> Path:
    """What a clone holds, but for the sources."""
    shutil.copytree(ROOT / "data", root / "data", ignore=shutil.ignore_patterns("arena_sft_*", ".arena_sft_*"))
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(ROOT / name, root)
    return root


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write_script(tmp_path / "bin")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ARENA_", "DAGSTER_"))}
    path = f"{tmp_path / 'bin'}{os.pathsep}{inherited['PATH']}"
    # Wide enough for every table: a page shows lines whole.
    return {**inherited, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def run_page(page: Path, root: Path, environment: dict[str, str]) -> None:
    variables = dict(environment)
    for command in commands(page.read_text()):
        assignment = re.fullmatch(r"([A-Z]+)=(\$\(.*\))", command.text)
        text = f"printf %s {assignment[2]}" if assignment else command.text
        ended = subprocess.run(["bash", "-c", text], cwd=root, env=variables, capture_output=True, text=True)
        output = ended.stdout + ended.stderr
        assert ended.returncode == command.status, f"{command.text}\n{output}"
        assert not (missing := command.missing(output)), f"{command.text}\nnot printed: {missing}\n{output}"
        if assignment:
            variables[assignment[1]] = ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(MICRO_SECONDS)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page(
    page: Path, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    place = PLACE.search(page.read_text())
    assert place is not None, f"{page.name} says where its commands run"
    if place[1] == FINISHED:
        lineage: Lineage = request.getfixturevalue("micro")
        root = copy_of(lineage, tmp_path / "project").root
        for path in (ROOT / "data" / "experiments").glob("*.toml"):
            if not (root / "data" / "experiments" / path.name).exists():
                shutil.copy(path, root / "data" / "experiments")
    else:
        assert place[1] == FRESH
        root = fresh_project(tmp_path / "project")
    run_page(page, root, environment)


def test_there_are_pages_and_commands() -> None:
    assert len(PAGES) >= 6
    for page in PAGES:
        assert len(commands(page.read_text())) >= 3, page.name


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            yield page, target


@pytest.mark.parametrize(("page", "target"), list(links()), ids=lambda value: getattr(value, "stem", value))
def test_links_lead_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


def test_what_a_page_may_claim() -> None:
    page = "```console\n$ arena x   # exits 1: why\nfirst ... 1.0\nlast\n$ ls\n```\n```sh\n$ not this\n```\n"
    first, second = commands(page)
    assert (first.text, first.status, first.shown) == ("arena x", 1, ["first ... 1.0", "last"])
    assert (second.text, second.status, second.shown) == ("ls", 0, [])
    assert first.missing("the first of 1.0\nand the last") == []
    assert first.missing("last\nfirst 1.0") == ["last"]
    assert first.missing("first\n1.0\nlast") == ["first ... 1.0", "last"]
