"""scripts/environment.sh on a toy project: installs once, notices changes, goes on after failures, spares other files.

The toy's lock files are empty and its build backend stands beside it, so that nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name, info = "toy-1-py3-none-any.whl", "toy-1.dist-info/"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: toy\\nVersion: 1\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "environment.sh", folder / "scripts")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-torch.txt"):
        (folder / name).write_text("# nothing\n")
    return folder


def environment(folder: Path, level: str = "core", python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHON": python, "PIP_NO_INDEX": "1", "VIRTUAL_ENV": "/nowhere"}
    command = ["bash", "scripts/environment.sh", level]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def installed(folder: Path) -> bool:
    program = "import importlib.metadata as m; print(m.version('toy'))"
    python = folder / ".venv" / "bin" / "python"
    return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout == "1\n"


def test_installs_once_and_again_only_after_a_change(toy: Path) -> None:
    first = environment(toy)
    assert first.returncode == 0, first.stderr
    assert "making .venv" in first.stderr
    assert installed(toy)
    assert environment(toy).stderr == ""

    (toy / "requirements.lock").write_text("# something else\n")
    changed = environment(toy)
    assert changed.returncode == 0
    assert "installing" in changed.stderr
    assert "making .venv" not in changed.stderr

    moved = toy.rename(toy.with_name("moved"))
    again = environment(moved)
    assert again.returncode == 0
    assert "making .venv" in again.stderr, "the scripts of a moved environment name a folder that is gone"


def test_a_failed_installation_is_taken_up_again(toy: Path) -> None:
    (toy / "requirements-dev.lock").write_text("missing-package==1 --hash=sha256:" + "0" * 64 + "\n")
    failed = environment(toy, "dev")
    assert failed.returncode == 1
    assert "run the same command again" in failed.stderr
    assert environment(toy, "core").stderr == "", "the core was in place before the failure"
    assert environment(toy, "dev").returncode == 1

    (toy / "requirements-dev.lock").write_text("# mended\n")
    mended = environment(toy, "dev")
    assert mended.returncode == 0
    assert "making .venv" not in mended.stderr

    shutil.rmtree(toy / ".venv" / "bin")
    broken = environment(toy, "dev")
    assert broken.returncode == 0
    assert installed(toy)


def test_an_environment_of_someone_else_is_left_alone(toy: Path) -> None:
    (toy / ".venv").mkdir()
    (toy / ".venv" / "keep").write_text("mine")
    refused = environment(toy)
    assert refused.returncode == 1
    assert "move it away" in refused.stderr
    assert (toy / ".venv" / "keep").read_text() == "mine"


@pytest.mark.parametrize("python", ["no-such-python", "false"])
def test_an_unsuitable_python_is_refused(toy: Path, python: str) -> None:
    refused = environment(toy, python=python)
    assert refused.returncode == 1
    assert f"PYTHON={python}" in refused.stderr
    assert "Python 3.11 to 3.14" in refused.stderr
    assert not (toy / ".venv").exists()
