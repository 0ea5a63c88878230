"""The lock files: complete, hashed, one version of a package, nothing of one machine or one graphics card in them."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ]+)(?: ; [^\\]+)? \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
)


def pins(name: str) -> dict[str, str]:
    """Package -> version of a lock file, which must hold nothing but comments and hashed pins."""
    text = (ROOT / name).read_text()
    body = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    assert PIN.sub("", body) == "", f"{name} holds something besides hashed pins"
    found = [(match["name"], match["version"]) for match in PIN.finditer(body)]
    assert len(dict(found)) == len(found), f"{name} pins a package twice"
    return dict(found)


def assert_met(requirements: list[str], locked: dict[str, str]) -> None:
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is asked for by pyproject.toml and missing in the lock: run `make lock`"
        assert Version(locked[name]) in requirement.specifier, f"{requirement} does not admit {locked[name]}"


def without_torch(requirements: list[str]) -> list[str]:
    return [requirement for requirement in requirements if Requirement(requirement).name != "torch"]


def test_the_core_lock_meets_the_dependencies() -> None:
    assert_met(without_torch(PROJECT["dependencies"]), pins("requirements.lock"))


@pytest.mark.parametrize("extra", ["dev", "postgres"])
def test_the_development_lock_meets_the_extras(extra: str) -> None:
    assert_met(PROJECT["optional-dependencies"][extra], pins("requirements-dev.lock"))


def test_the_development_lock_holds_the_core_lock() -> None:
    assert pins("requirements.lock").items() <= pins("requirements-dev.lock").items()


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_torch_and_gpu_libraries_stay_out(name: str) -> None:
    assert [pin for pin in pins(name) if re.match(r"torch|triton|nvidia-|cuda-", pin)] == []


def test_torch_is_pinned_by_its_own_line_and_installed() -> None:
    (line,) = (ROOT / "requirements-torch.txt").read_text().split()
    pinned = Requirement(line)
    (asked,) = (Requirement(item) for item in PROJECT["dependencies"] if Requirement(item).name == "torch")
    (only,) = pinned.specifier
    assert only.operator == "=="
    assert Version(only.version) in asked.specifier
    assert Version(version("torch")) in pinned.specifier


def test_installed_versions_are_the_locked_ones() -> None:
    locked = pins("requirements-dev.lock")
    direct = [*without_torch(PROJECT["dependencies"]), *PROJECT["optional-dependencies"]["dev"]]
    names = [canonicalize_name(Requirement(item).name) for item in direct]
    assert {name: version(name) for name in names} == {name: locked[name] for name in names}
