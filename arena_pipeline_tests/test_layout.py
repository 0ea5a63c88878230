"""Rules about the sources themselves: sizes, imports, what may never appear in them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted((ROOT / "arena_pipeline").rglob("*.py"))
MAX_LINES = 400

UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"torch.load", "torch.save"}
UNSAFE_KEYWORDS = {"trust_remote_code", "allow_pickle"}

HEAVY = {"torch", "transformers", "trl", "peft", "datasets", "accelerate"}

# Folders of one person's machine where a path begins: after a quote, a space, an equals sign, not inside a longer path.
MACHINE_PATH = re.compile(rb"(?<![\w./~$})-])/(?:work|root|tmp|home|Users|opt/wheels)/[\w.]")
# Split, so that this file does not contain what it looks for.
REGISTRY_HOSTS = tuple(
    f"{host}.{domain}".encode()
    for host, domain in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("deb.debian", "org"),
        ("download.pytorch", "org"),
    )
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("path", PACKAGE, ids=relative)
def test_modules_stay_short(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MAX_LINES, f"{relative(path)} has {lines} lines, at most {MAX_LINES} are allowed: split it"


def unsafe_loading(source: str) -> Iterator[tuple[int, str]]:
    """Every place that could run code out of a data file, as (line, what)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in UNSAFE_MODULES:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module or "").partition(".")[
                    0
                ] in UNSAFE_MODULES or f"{node.module}.{alias.name}" in UNSAFE_CALLS:
                    yield node.lineno, f"from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in UNSAFE_CALLS:
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg in UNSAFE_KEYWORDS:
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                yield node.value.lineno, f"{node.arg}={ast.unparse(node.value)}"
        elif isinstance(node, ast.Constant) and node.value in UNSAFE_KEYWORDS:
            yield node.lineno, repr(node.value)


@pytest.mark.parametrize("path", PACKAGE, ids=relative)
def test_nothing_runs_code_out_of_a_data_file(path: Path) -> None:
    assert list(unsafe_loading(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "f(trust_remote_code=True)",
        "f(**{'trust_remote_code': True})",
        "np.load('x', allow_pickle=flag)",
    ],
)
def test_the_search_for_unsafe_loading_finds_it(source: str) -> None:
    assert list(unsafe_loading(source))


def test_the_search_for_unsafe_loading_lets_refusals_pass() -> None:
    assert not list(unsafe_loading("np.load('x', allow_pickle=False)\nf(trust_remote_code=False)"))


@pytest.mark.parametrize("module", ["arena_pipeline.definitions", "arena_pipeline.cli", "arena_pipeline.arena"])
def test_light_modules_load_no_model_library(module: str, tmp_path: Path) -> None:
    program = f"import sys, {module}\nprint(*sorted({HEAVY!r} & sys.modules.keys()))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == [], f"import {module} also imports these"


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if path.suffix in {".safetensors", ".png"}:
            continue
        for number, line in enumerate(content.splitlines(), start=1):
            if MACHINE_PATH.search(line) or any(host in line for host in REGISTRY_HOSTS):
                found.append(f"{relative(path)}:{number}: {line[:120].decode(errors='replace')}")
    assert found == []


@pytest.mark.parametrize("before", [b"", b'open("', b"see ", b"PATH="])
@pytest.mark.parametrize("folder", [b"work", b"root", b"tmp", b"home", b"Users"])
def test_the_search_for_machine_paths_finds_them(before: bytes, folder: bytes) -> None:
    assert MACHINE_PATH.search(before + b"/" + folder + b"/x")


@pytest.mark.parametrize("line", [b"root/work/<stage>", b"$HOME/tmp/x", b"a/tmp/b", b"storage/artifacts/work/x"])
def test_the_search_for_machine_paths_leaves_others_alone(line: bytes) -> None:
    assert not MACHINE_PATH.search(line)
