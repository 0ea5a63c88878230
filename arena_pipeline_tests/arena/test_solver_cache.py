"""The compiled solver's cache: compiled once per machine, and a missing or unwritable cache is no trouble."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import arena_pipeline

PACKAGE = Path(arena_pipeline.__file__).parent

# Every warning is an error in the child. "compiled" is false where the machine code came out of the cache.
SOLVE = """
import json
from arena_pipeline.arena import generate_state, solve
reward = solve(generate_state(7)).reward
from arena_pipeline.arena._search import search
print(json.dumps({"reward": reward, "compiled": not search.stats.cache_hits, "directory": search.stats.cache_path}))
"""
REWARD = 2.65  # of seed 7, see golden/act_rows.json


def _install(root: Path) -> Path:
    """A copy of the package, without anything compiled; the directory to import it from."""
    shutil.copytree(PACKAGE, root / "arena_pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def _solve(root: Path, home: Path, *flags: str) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "XDG_", "PYTHON"))}
    environment |= {"PYTHONPATH": str(root), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", *flags, "-c", SOLVE]
    child = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stderr == ""
    answer: dict[str, Any] = json.loads(child.stdout)
    assert answer["reward"] == REWARD
    return answer


def test_it_compiles_once_and_where_it_may_write(tmp_path: Path) -> None:
    root, home = _install(tmp_path / "installed"), tmp_path / "home"
    home.mkdir()
    first = _solve(root, home)
    assert first["compiled"]
    assert Path(first["directory"]).is_relative_to(root)
    assert not _solve(root, home)["compiled"]

    # A directory of that name cannot be made where a file stands, whoever runs this: as on a read-only installation.
    cache = root / "arena_pipeline" / "arena" / "__pycache__"
    shutil.rmtree(cache)
    cache.touch()
    elsewhere = _solve(root, home)
    assert elsewhere["compiled"]
    assert Path(elsewhere["directory"]).is_relative_to(home)
    assert not _solve(root, home)["compiled"]

    nowhere = _solve(root, Path(os.devnull))
    assert nowhere["compiled"]
    assert nowhere["directory"] is None


def test_the_environment_loads_without_numba_and_numpy() -> None:
    code = "import sys, arena_pipeline.arena; print(sorted({'numba', 'numpy'} & set(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert child.stdout.strip() == "[]"
