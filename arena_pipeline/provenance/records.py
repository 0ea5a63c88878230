"""The record that says how an artifact came about: stage, inputs, configuration, code version and files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arena_pipeline.errors import ArtifactError, IntegrityError
from arena_pipeline.provenance.files import write_text
from arena_pipeline.provenance.hashing import sha256_bytes, sha256_json

_STAGE = re.compile(r"[a-z0-9_]+")


def is_stage(value: str) -> bool:
    """Whether a text may name a stage: lower-case letters, digits and underscores."""
    return _STAGE.fullmatch(value) is not None


def stage_key(stage: str, *, inputs: Mapping[str, str], config: Any, code_version: str) -> str:
    """Key of a stage's work (design, "Experiments"): the SHA-256 of its name and all that decides its result.

    ``inputs`` maps each input's name to the SHA-256 of its bytes; ``config`` is the configuration slice that the stage
    reads, as JSON; ``code_version`` is that stage's own. Raises ``ArtifactError`` if a value is an absolute path, which
    would make equal work look different in another checkout.
    """
    if not is_stage(stage):
        raise ArtifactError(f"stage {stage!r}: found other characters than the allowed a-z, 0-9 and _")
    content = {"stage": stage, "inputs": dict(inputs), "config": config, "code_version": code_version}
    for place, text in _texts("", content):
        if Path(text).is_absolute():
            raise ArtifactError(
                f"stage {stage}: {place} is the absolute path {text!r}; give it relative to the project, or as a hash"
            )
    return sha256_json(content)


def _texts(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(f"{place}.{key}" if place else str(key), item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(f"{place}[{index}]", item)


@dataclass(frozen=True)
class Provenance:
    """How an artifact came about. ``files`` maps each payload file's relative POSIX path to its SHA-256."""

    stage: str
    key: str
    inputs: dict[str, str]
    config: Any
    code_version: str
    artifact_sha256: str
    files: dict[str, str]

    @property
    def sha256(self) -> str:
        """SHA-256 of the record's canonical JSON."""
        return sha256_json(asdict(self))

    def write(self, path: Path) -> None:
        """Write the record, with its own hash, in its one canonical form."""
        write_text(path, self._text())

    def _text(self) -> str:
        value = {"provenance": asdict(self), "provenance_sha256": self.sha256}
        return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path, stage: str, key: str, advice: str = "") -> Provenance:
        """Read a record and prove it: canonical bytes, its own hash, and the key that it is filed under.

        Raises ``IntegrityError`` naming the record file.
        """
        data = path.read_bytes()
        try:
            value = json.loads(data)
            record = cls(**value["provenance"])
            stated = str(value["provenance_sha256"])
            derived = stage_key(
                record.stage, inputs=record.inputs, config=record.config, code_version=record.code_version
            )
            found = record.sha256
            canonical = record._text().encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ArtifactError):
            found = f"{sha256_bytes(data)}, which is none"
            raise IntegrityError(path, "of a provenance record", found, advice) from None
        if found != stated:
            raise IntegrityError(path, stated, found, advice)
        if data != canonical:
            raise IntegrityError(path, sha256_bytes(canonical), sha256_bytes(data), advice)
        if (record.stage, record.key, derived) != (stage, key, key):
            filed = f"{record.key} of stage {record.stage} (derived: {derived})"
            raise IntegrityError(path, f"key {key} of stage {stage}", filed, advice)
        return record
