"""Content-addressed artifacts: a stage's result is filed under what decided it and re-hashed before each use.

Layout below the store's root::

    objects/<aa>/<sha256>/              payload files, read-only
    objects/<aa>/<sha256>.files.json    their hashes; the hash of this list is the object's name
    keys/<stage>/<key>.json             provenance record: which object answers this key, and how it came about
    work/<stage>/<key>/                 resumable scratch directory, alive until its commit
    commits/<stage>/<key>.json          a commit under way: lets the next process finish it after a kill
    locks/<stage>/<key>.lock            held while a process works on this key
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arena_pipeline.errors import ArtifactError, IntegrityError, LockHeld
from arena_pipeline.provenance.files import write_text
from arena_pipeline.provenance.hashing import canonical_json, is_sha256, sha256_bytes, tree_sha256
from arena_pipeline.provenance.locks import exclusive_lock
from arena_pipeline.provenance.records import Provenance, is_stage, stage_key
from arena_pipeline.provenance.trees import NO_FILE, flush, flush_tree, hash_tree, verify_tree

__all__ = ["Artifact", "ArtifactStore", "Provenance", "stage_key"]


@dataclass(frozen=True)
class Artifact:
    """Files that were verified when this object was made.

    ``sha256`` is the hash of the list ``files`` (relative POSIX path -> SHA-256), so equal content has an equal hash
    whatever made it. ``provenance`` is None for an artifact opened by its hash alone.
    """

    sha256: str
    path: Path
    files: dict[str, str]
    provenance: Provenance | None = None
    advice: str = field(default="", repr=False, compare=False)

    @property
    def stage(self) -> str:
        """Stage that this artifact was found or committed for; empty if it was opened by hash."""
        return self.provenance.stage if self.provenance else ""

    @property
    def key(self) -> str:
        """Key that this artifact was found or committed for; empty if it was opened by hash."""
        return self.provenance.key if self.provenance else ""

    def file(self, name: str) -> Path:
        """Path of one payload file; ``ArtifactError`` if the artifact has none of that name."""
        if name not in self.files:
            raise ArtifactError(f"artifact {self.sha256}: no file {name!r}; it has {', '.join(sorted(self.files))}")
        return self.path / name

    def read_bytes(self, name: str) -> bytes:
        """Read one payload file; the very bytes returned are the ones compared with the recorded hash."""
        path = self.file(name)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise IntegrityError(path, self.files[name], NO_FILE, self.advice) from None
        if (found := sha256_bytes(data)) != self.files[name]:
            raise IntegrityError(path, self.files[name], found, self.advice)
        return data

    def read_json(self, name: str) -> Any:
        """Read one payload file as JSON, verified like ``read_bytes``."""
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            raise ArtifactError(f"{self.file(name)}: not a JSON file ({error})") from None

    def verify(self) -> None:
        """Re-hash all bytes; ``IntegrityError`` names a file that was changed, removed, added or made a link."""
        verify_tree(self.path, self.files, self.advice)


class ArtifactStore:
    """The store below ``root`` (``storage/artifacts`` of an instance). Many processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def work(self, stage: str, key: str) -> Iterator[Path]:
        """Give this process, alone, the scratch directory of a key; what it holds outlives a kill.

        ``LockHeld`` names the process that is at it already. Call ``find`` again inside the block: another process may
        have committed while this one came here.
        """
        scratch = self._place("work", stage, key)
        with exclusive_lock(self._place("locks", stage, key, ".lock"), f"{stage} with key {key}"):
            scratch.mkdir(parents=True, exist_ok=True)
            yield scratch

    def commit(
        self, stage: str, key: str, directory: Path, *, inputs: Mapping[str, str], config: Any, code_version: str
    ) -> Artifact:
        """Turn ``directory`` (the scratch directory of this key, or one inside it) into the artifact for this key.

        Whole or not at all: killed at any point, the next ``find`` either finishes the commit or reports nothing and
        the scratch directory is as it was. Afterwards the scratch directory is gone. Raises ``ArtifactError`` if the
        key is not the ``stage_key`` of the other arguments, if nothing was written, or if the key was committed with
        other content; ``IntegrityError`` for a link in the directory or damage to an equal object in the store.
        """
        scratch = self._place("work", stage, key)
        if (derived := stage_key(stage, inputs=inputs, config=config, code_version=code_version)) != key:
            raise ArtifactError(f"{stage}: key {key} is not that of its inputs, configuration and code, {derived}")
        if not directory.is_dir() or not directory.resolve().is_relative_to(scratch.resolve()):
            raise ArtifactError(f"{directory}: not a directory inside this key's scratch directory {scratch}")
        files = hash_tree(directory)
        if not files:
            raise ArtifactError(f"{directory}: nothing was written there, so there is nothing to commit for {stage}")
        sha256 = tree_sha256(files)
        record = Provenance(stage, key, dict(inputs), config, code_version, sha256, files)
        if (earlier := self.find(stage, key)) is not None:
            if earlier.sha256 != sha256:
                raise ArtifactError(
                    f"{self._index(stage, key)}: this key was committed as {earlier.sha256}, found {sha256} now; "
                    "a committed result is never replaced"
                )
        else:
            listing = self._listing(sha256)
            write_text(listing, canonical_json(files))
            listing.chmod(0o444)
            record.write(self._place("commits", stage, key, ".json"))
            self._move_into_place(directory, sha256)
            self._finish(record)
        shutil.rmtree(scratch, ignore_errors=True)
        return self._artifact(sha256, files, record)

    def find(self, stage: str, key: str) -> Artifact | None:
        """The artifact committed for a key, with every byte re-hashed; None if there is none.

        Raises ``IntegrityError`` for a record that is not of this key and for any file that is not as it was committed.
        """
        index = self._index(stage, key)
        if not os.path.lexists(index) and not self._recover(stage, key):
            return None
        record = self._read_record(index, stage, key)
        self._verify_listing(record.artifact_sha256)
        artifact = self._artifact(record.artifact_sha256, record.files, record)
        artifact.verify()
        return artifact

    def open(self, sha256: str) -> Artifact:
        """The artifact of a hash, with every byte re-hashed; ``ArtifactError`` if the store has none."""
        if not os.path.lexists(self._listing(sha256)):
            raise ArtifactError(f"{self.root}: no artifact {sha256}")
        artifact = self._artifact(sha256, json.loads(self._verify_listing(sha256)), None)
        artifact.verify()
        return artifact

    def remove_leftovers(self) -> list[str]:
        """Delete the scratch directories that no process works in; return them as ``stage/key``."""
        removed = []
        for scratch in sorted(self.root.glob("work/*/*")):
            stage, key = scratch.parent.name, scratch.name
            try:
                with self.work(stage, key):
                    self._recover(stage, key)
                    shutil.rmtree(scratch)
            except LockHeld:
                continue
            removed.append(f"{stage}/{key}")
        return removed

    def _move_into_place(self, directory: Path, sha256: str) -> None:
        """Make a directory the object of a hash, unless equal content is there already and sound."""
        flush_tree(directory)
        try:
            directory.rename(self._object(sha256))
        except OSError:
            # Not asked beforehand: another process may commit equal content for another key at this moment.
            if not os.path.lexists(self._object(sha256)):
                raise
            self.open(sha256)

    def _recover(self, stage: str, key: str) -> bool:
        """Finish a commit that was cut off after its object came into place; whether there was one."""
        journal = self._place("commits", stage, key, ".json")
        if not journal.exists():
            return False
        record = self._read_record(journal, stage, key)
        if not os.path.lexists(self._object(record.artifact_sha256)):
            return False
        self.open(record.artifact_sha256)
        self._finish(record)
        return True

    def _finish(self, record: Provenance) -> None:
        """Make the object's files read-only and file it under its key; doing it twice is the same as once."""
        place = self._object(record.artifact_sha256)
        for name in record.files:
            (place / name).chmod(0o444)
        flush(place.parent)
        record.write(self._index(record.stage, record.key))
        self._place("commits", record.stage, record.key, ".json").unlink(missing_ok=True)

    def _artifact(self, sha256: str, files: dict[str, str], record: Provenance | None) -> Artifact:
        advice = self._advice(sha256)
        if record is not None:
            advice += f" and {self._index(record.stage, record.key)}"
        return Artifact(sha256, self._object(sha256), files, record, advice)

    def _read_record(self, path: Path, stage: str, key: str) -> Provenance:
        advice = f"delete {path} to compute this stage again"
        self._refuse_links(path, advice)
        return Provenance.read(path, stage, key, advice)

    def _verify_listing(self, sha256: str) -> bytes:
        """Read an object's list of files, proven to be, byte for byte, the one that the object is named after."""
        listing = self._listing(sha256)
        self._refuse_links(listing, self._advice(sha256))
        try:
            data = listing.read_bytes()
        except FileNotFoundError:
            raise IntegrityError(listing, sha256, NO_FILE, self._advice(sha256)) from None
        if (found := sha256_bytes(data)) != sha256:
            raise IntegrityError(listing, sha256, found, self._advice(sha256))
        return data

    def _refuse_links(self, path: Path, advice: str) -> None:
        """No part of a path below the root may be a link: what lies behind one is not in the store."""
        for part in (path, *path.parents):
            if part == self.root:
                return
            if part.is_symlink():
                raise IntegrityError(part, "of a part of the store", "a symbolic link", advice)

    def _advice(self, sha256: str) -> str:
        return f"to compute it again, delete {self._object(sha256)}"

    def _object(self, sha256: str) -> Path:
        if not is_sha256(sha256):
            raise ArtifactError(f"artifact {sha256!r}: found no SHA-256 of 64 lower-case hexadecimal digits")
        return self.root / "objects" / sha256[:2] / sha256

    def _listing(self, sha256: str) -> Path:
        place = self._object(sha256)
        return place.with_name(f"{place.name}.files.json")

    def _index(self, stage: str, key: str) -> Path:
        return self._place("keys", stage, key, ".json")

    def _place(self, kind: str, stage: str, key: str, suffix: str = "") -> Path:
        if not is_stage(stage) or not is_sha256(key):
            raise ArtifactError(f"stage {stage!r}, key {key!r}: allowed is a name of a-z, 0-9, _ and a SHA-256")
        return self.root / kind / stage / f"{key}{suffix}"
