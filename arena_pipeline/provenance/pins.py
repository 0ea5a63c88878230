"""What every input must be: ``data/pins.toml``, committed, and the hashes an instance recorded at a first load.

The pins are the root of trust: whoever may write ``data/pins.toml`` decides what the pipeline accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from arena_pipeline.errors import ConfigError, PinMismatch
from arena_pipeline.provenance.config_files import Config, Sha256, check_config, read_toml
from arena_pipeline.provenance.files import read_json, write_json
from arena_pipeline.provenance.hashing import tree_sha256
from arena_pipeline.provenance.locks import exclusive_lock
from arena_pipeline.provenance.trees import NO_FILE

PinKind = Literal["prompt_packs", "datasets", "manifests", "base_models", "gates"]
TreeKind = Literal["datasets", "base_models"]

STANDARD_BUILD: Final = (1024, 0)
"""Number and first seed of the plain rows of the standard dataset."""


def dataset_pin_name(prompt_version: str, num_seeds: int, start_seed: int) -> str:
    """Name under which a dataset is pinned: its prompt version, with its seeds unless they are the standard 0..1023."""
    if (num_seeds, start_seed) == STANDARD_BUILD:
        return prompt_version
    return f"{prompt_version}/{start_seed}+{num_seeds}"


class DatasetPin(Config):
    """One dataset (dataset spec, "Rows, ids, hash")."""

    content_sha256: Sha256
    """SHA-256 of the concatenation of all row ids, sorted."""
    files: dict[str, Sha256] | None = None
    """SHA-256 of each file; left out where the files may be laid out in more than one way."""

    @property
    def pinned_sha256(self) -> str:
        """The hash that ``Pins.expect`` compares."""
        return self.content_sha256


class ModelPin(Config):
    """One base model."""

    sha256: Sha256
    """SHA-256 of the canonical JSON of {file: SHA-256} over all files of the directory."""
    files: dict[str, Sha256] | None = None
    """SHA-256 of each file, so that a mismatch can name the file."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.files is not None and (found := tree_sha256(self.files)) != self.sha256:
            raise ValueError(f"sha256 is {self.sha256}, but that of its files is {found}; pin both from one directory")
        return self

    @property
    def pinned_sha256(self) -> str:
        """The hash that ``Pins.expect`` compares."""
        return self.sha256


class Pins(Config):
    """The content of ``data/pins.toml``."""

    prompt_packs: dict[str, Sha256]
    """Prompt pack version -> SHA-256 of the pack."""
    datasets: dict[str, DatasetPin]
    """``dataset_pin_name`` -> dataset."""
    manifests: dict[str, Sha256]
    """Manifest name -> SHA-256 of its cases."""
    base_models: dict[str, ModelPin]
    """Base model name -> model."""
    gates: dict[str, Sha256]
    """Gate policy version -> SHA-256 of the policy file."""

    _file: str = PrivateAttr(default="")

    @classmethod
    def load(cls, path: Path) -> Pins:
        """Read the pins; ``ConfigError`` for an unknown key or anything that is no SHA-256."""
        pins = check_config(cls, read_toml(path), path)
        pins._file = str(path)
        return pins

    def expect(self, kind: PinKind, name: str, found: str, file: object, *, allow_new: bool = False) -> bool:
        """Compare the hash ``found`` in ``file`` with its pin; True if it is pinned and equal.

        Raises ``PinMismatch`` if it differs. An input without a pin raises ``ConfigError``, or gives False with
        ``allow_new`` (an input that the user brought: ``RecordedPins`` then holds it to its first load).
        """
        pin = getattr(self, kind).get(name)
        if pin is None:
            if allow_new:
                return False
            known = ", ".join(sorted(getattr(self, kind))) or "none"
            raise ConfigError(f"{self._file}: {kind}.{name}: not pinned, found {found} in {file}; pinned are: {known}")
        expected = pin if isinstance(pin, str) else pin.pinned_sha256
        if found != expected:
            raise PinMismatch(file, expected, found, f"pinned as {kind}.{name} in {self._file}")
        return True

    def expect_files(self, kind: TreeKind, name: str, found: Mapping[str, str], directory: Path) -> bool:
        """Compare a directory's file hashes with the pinned ones; False if there are none.

        Raises ``PinMismatch`` naming the first file that differs, is missing or was added.
        """
        pin = (self.datasets if kind == "datasets" else self.base_models).get(name)
        if pin is None or pin.files is None:
            return False
        _compare(pin.files, found, directory, f"pinned as {kind}.{name} in {self._file}")
        return True


def _compare(expected: Mapping[str, str], found: Mapping[str, str], directory: Path, advice: str) -> None:
    for name in sorted({*expected, *found}):
        wanted, present = expected.get(name, NO_FILE), found.get(name, NO_FILE)
        if wanted != present:
            raise PinMismatch(directory / name, wanted, present, advice)


class _RecordedTree(Config):
    sha256: Sha256
    files: dict[str, Sha256]
    recorded_at: str


class _Recorded(Config):
    """Kind -> directory as the experiment names it -> name of the input -> what its first verified load found."""

    datasets: dict[str, dict[str, _RecordedTree]] = Field(default_factory=dict)
    base_models: dict[str, dict[str, _RecordedTree]] = Field(default_factory=dict)


class RecordedPins:
    """``storage/recorded_pins.json``: hashes of inputs that the user brought, taken at the first load that verified."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def expect(
        self, kind: TreeKind, place: str, name: str, sha256: str, files: Mapping[str, str], directory: Path
    ) -> bool:
        """Hold an input to its first load: True if it was compared and is equal, False if it is now recorded.

        ``place`` is the directory as the experiment names it, ``sha256`` the input's content hash. Call this only
        after the content was verified. Raises ``PinMismatch`` naming the first file that differs, is missing or was
        added, or the directory if only the content hash differs.
        """
        with self._locked():
            if self.compare(kind, place, name, sha256, files, directory):
                return True
            self._write(kind, place, name, sha256, files)
            return False

    def compare(
        self, kind: TreeKind, place: str, name: str, sha256: str, files: Mapping[str, str], directory: Path
    ) -> bool:
        """``expect`` without recording anything: False if nothing is recorded of this input."""
        known = getattr(self._read(), kind).get(place, {}).get(name)
        if known is None:
            return False
        advice = f"recorded on {known.recorded_at}; replaced on purpose? delete its entry from {self.path}"
        _compare(known.files, files, directory, advice)
        if known.sha256 != sha256:
            raise PinMismatch(directory, known.sha256, sha256, advice)
        return True

    def hashes(self, kind: TreeKind) -> frozenset[str]:
        """The content hash of everything of a kind that is recorded, whatever its place and name."""
        places = getattr(self._read(), kind).values()
        return frozenset(tree.sha256 for named in places for tree in named.values())

    def record(self, kind: TreeKind, place: str, name: str, sha256: str, files: Mapping[str, str]) -> None:
        """Record an input that this project itself just made in ``place``, in the stead of what stood there before."""
        with self._locked():
            self._write(kind, place, name, sha256, files)

    def _locked(self) -> AbstractContextManager[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        return exclusive_lock(lock, str(self.path), on_wait=lambda holder: None)

    def _write(self, kind: TreeKind, place: str, name: str, sha256: str, files: Mapping[str, str]) -> None:
        value = self._read().model_dump()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        value[kind].setdefault(place, {})[name] = {"sha256": sha256, "files": dict(files), "recorded_at": now}
        write_json(self.path, check_config(_Recorded, value, self.path).model_dump())

    def _read(self) -> _Recorded:
        return check_config(_Recorded, read_json(self.path) if self.path.exists() else {}, self.path)
