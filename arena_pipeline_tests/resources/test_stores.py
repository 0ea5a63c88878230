"""Where resources find the project, and that pins are looked up by bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from arena_pipeline.errors import ConfigError, PinMismatch
from arena_pipeline.provenance.ledger import Ledger
from arena_pipeline.provenance.ledger_export import export_openings
from arena_pipeline.resources.locations import ledger_address, project_root, storage_directory
from arena_pipeline.resources.stores import ArtifactStoreResource, LedgerResource, ProjectResource

ROOT = Path(__file__).resolve().parents[2]
PACK = "data/prompts/arena-v2-open.toml"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data" / "prompts").mkdir(parents=True)
    for name in ("data/pins.toml", "data/gates.toml", PACK):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(tmp_path))
    for name in ("ARENA_STORAGE_DIR", "ARENA_LEDGER_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_places_come_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert project_root() == root
    assert storage_directory() == root / "storage"
    assert ledger_address() == f"sqlite:///{root}/storage/ledger.sqlite"
    monkeypatch.setenv("ARENA_STORAGE_DIR", str(root / "elsewhere"))
    assert storage_directory() == root / "elsewhere"
    assert ArtifactStoreResource().store.root == root / "elsewhere" / "artifacts"
    monkeypatch.setenv("ARENA_LEDGER_URL", "postgresql://host/arena")
    assert ledger_address() == "postgresql://host/arena"


def test_a_folder_without_pins_is_no_project(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_PROJECT_DIR", str(root / "data"))
    with pytest.raises(ConfigError, match=r"ARENA_PROJECT_DIR is .*, where no data/pins\.toml is; name the folder"):
        project_root()
    monkeypatch.delenv("ARENA_PROJECT_DIR")
    assert project_root() == ROOT


def test_resources_hold_no_path() -> None:
    for resource in (ProjectResource(), ArtifactStoreResource(), LedgerResource()):
        assert resource.model_dump() == {}, "an absolute path in the configuration would tie a run to one machine"


@pytest.mark.parametrize("position", [0, 10, 300, -1])
def test_any_changed_byte_of_the_gate_policy_is_named_by_hash(root: Path, position: int) -> None:
    policy = ProjectResource().gate_policy()
    path = root / "data" / "gates.toml"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(PinMismatch) as raised:
        ProjectResource().gate_policy()
    assert raised.value.file == str(path)
    assert raised.value.expected == policy.sha256
    assert raised.value.found != policy.sha256


def test_a_policy_of_another_version_must_be_pinned_as_that_version(root: Path) -> None:
    path, pins = root / "data" / "gates.toml", root / "data" / "pins.toml"
    path.write_text(path.read_text().replace("gates-v1", "gates-v2"))
    from arena_pipeline.provenance.hashing import sha256_file

    old = ProjectResource().pins.gates["gates-v1"]
    pins.write_text(pins.read_text().replace(old, sha256_file(path)))
    with pytest.raises(ConfigError, match=r"gates\.gates-v2: not pinned"):
        ProjectResource().gate_policy()
    pins.write_text(pins.read_text().replace("gates-v1 =", "gates-v2 ="))
    assert ProjectResource().gate_policy().version == "gates-v2"


def test_a_missing_policy_is_told(root: Path) -> None:
    (root / "data" / "gates.toml").unlink()
    with pytest.raises(ConfigError, match=r"gates\.toml: no such file; restore the committed one"):
        ProjectResource().gate_policy()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("JSON", "JSOM"),
        ('version = "arena-v2-open"', 'version = "arena-v2-opem"'),
        ('version = "arena-v2-open"', "version = arena-v2-open"),
    ],
)
def test_a_changed_prompt_pack_is_named_by_hash(root: Path, old: str, new: str) -> None:
    """Also where the change makes it a pack of another version, or no pack at all."""
    pinned = ProjectResource().prompt_pack(PACK).sha256
    text = (root / PACK).read_text()
    assert old in text
    (root / PACK).write_text(text.replace(old, new, 1))
    with pytest.raises(PinMismatch, match=f"expected sha256 {pinned}, found "):
        ProjectResource().prompt_pack(PACK)


def test_a_pack_of_the_users_own_needs_no_pin(root: Path) -> None:
    own = root / "data" / "prompts" / "mine.toml"
    own.write_text((root / PACK).read_text().replace("arena-v2-open", "mine"))
    assert ProjectResource().prompt_pack("data/prompts/mine.toml").version == "mine"
    own.write_text((root / PACK).read_text().replace("JSON", "Json", 1))
    with pytest.raises(PinMismatch, match="prompt_packs.arena-v2-open"):
        ProjectResource().prompt_pack("data/prompts/mine.toml")
    own.write_text("version = ")
    with pytest.raises(ConfigError):
        ProjectResource().prompt_pack("data/prompts/mine.toml")


def test_openings_elsewhere_are_those_that_this_instance_did_not_make(root: Path) -> None:
    sealed, other = "a" * 64, "b" * 64
    own = LedgerResource().ledger.open(sealed, "1" * 64, "here", "2" * 64, "run 1")
    distant = Ledger(f"sqlite:///{root}/distant.sqlite")
    there = distant.open(sealed, "3" * 64, "there", "4" * 64, "run 2")
    distant.open(other, "3" * 64, "there", "4" * 64, "run 2")
    assert LedgerResource().elsewhere(sealed) == []
    (root / "docs" / "runs").mkdir(parents=True)
    export_openings([own, *distant.openings()], root / "docs" / "runs" / "ledger.jsonl")
    assert LedgerResource().elsewhere(sealed) == [there]
