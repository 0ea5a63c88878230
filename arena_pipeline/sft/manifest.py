"""A dataset's manifest.json: versions, counts, rejections and content hash (dataset spec, "Rows, ids, hash")."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from arena_pipeline.errors import DatasetError

MANIFEST_FILE: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class DatasetManifest:
    """What a dataset says of itself; nothing in it is believed without counting again.

    ``generation_workers`` is how many processes built it; it changes no row.
    """

    arena_version: str
    content_sha256: str
    dataset_version: str
    examples_by_phase: Mapping[str, int]
    examples_by_split: Mapping[str, int]
    generation_workers: int
    generator_version: str
    num_examples: int
    num_seeds: int
    prompt_version: str
    rejections: Mapping[str, int]
    start_seed: int
    targeted_mechanics_per_kind: int
    targeted_silence_examples: int

    def to_dict(self) -> dict[str, Any]:
        """The manifest as its file holds it."""
        return asdict(self)

    def text(self) -> str:
        """The file's text: indented key-sorted JSON and a newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, body: Any, file: str) -> DatasetManifest:
        """Check the form of a manifest; ``DatasetError`` names the file and the key that is wrong."""
        if not isinstance(body, dict):
            raise DatasetError(f"{file}: a manifest is a JSON object, found {type(body).__name__}")
        names = [field.name for field in fields(cls)]
        for key in sorted(set(body) ^ set(names)):
            problem = "is unknown" if key in body else "is missing"
            raise DatasetError(f"{file}: key {key!r} {problem}; a manifest has exactly {', '.join(names)}")
        for field in fields(cls):
            # With postponed annotations a field's type is its text.
            is_right, wanted = _FORMS[str(field.type)]
            if not is_right(body[field.name]):
                raise DatasetError(f"{file}: key {field.name!r} is {body[field.name]!r}; allowed is {wanted}")
        return cls(**body)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_count, value.values()))


_FORMS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "str": (_is_text, "a text"),
    "int": (_is_count, "an integer from 0"),
    "Mapping[str, int]": (_is_counts, "an object of integers from 0"),
}
