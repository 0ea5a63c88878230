"""Settings files in TOML, checked against a Pydantic model; each problem is told in one line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from arena_pipeline.errors import ConfigError
from arena_pipeline.provenance.hashing import is_sha256

_MAX_SHOWN = 80


class Config(BaseModel):
    """Base of every settings model: unknown keys refused, nothing converted silently, no value changed afterwards."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def _sha256(value: str) -> str:
    if not is_sha256(value):
        raise ValueError(f"found {value!r}; allowed: a SHA-256 of 64 lower-case hexadecimal digits")
    return value


Sha256 = Annotated[str, AfterValidator(_sha256)]
ConfigModel = TypeVar("ConfigModel", bound=Config)


def read_toml(path: Path, shown: object = None) -> dict[str, Any]:
    """Read a TOML file. ``ConfigError`` names it, as ``shown`` if given, and the line that is not TOML."""
    shown = path if shown is None else shown
    return parse_toml(read_file(path, shown), shown)


def read_file(path: Path, shown: object) -> bytes:
    """The bytes of a settings file, for whoever hashes the very bytes that are parsed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file") from None


def parse_toml(data: bytes, shown: object) -> dict[str, Any]:
    """The content of a settings file's bytes."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{shown}: not a TOML file ({error})") from None


def check_config(model: type[ConfigModel], data: Mapping[str, Any], shown: object) -> ConfigModel:
    """Make a ``model`` of a file's content.

    ``ConfigError`` has one line for each problem: file, key, what was found, what is allowed.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        lines = [f"{shown}: {_line(model, problem)}" for problem in error.errors(include_url=False)]
        raise ConfigError("\n".join(lines)) from None


def _line(model: type[BaseModel], problem: ErrorDetails) -> str:
    place = problem["loc"]
    key = ".".join(str(part) for part in place)
    prefix = f"{key}: " if key else ""
    if problem["type"] == "extra_forbidden":
        allowed = sorted(_model_at(model, place[:-1]).model_fields)
        near = difflib.get_close_matches(str(place[-1]), allowed, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"{prefix}unknown key{hint}; allowed: {', '.join(allowed)}"
    if problem["type"] == "missing":
        field = _model_at(model, place[:-1]).model_fields[str(place[-1])]
        meaning = (field.description or "").split("\n")[0]
        return f"{prefix}missing; add it{': ' + meaning if meaning else ''}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{prefix}{message}"
    found = repr(problem["input"])
    shortened = found if len(found) <= _MAX_SHOWN else f"{found[:_MAX_SHOWN]}..."
    return f"{prefix}found {shortened}; allowed: {message.removeprefix('Input should be ')}"


def _model_at(model: type[BaseModel], place: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that describes the table at a place in the file, through tables of tables."""
    for part in place:
        if str(part) in model.model_fields:
            model = _model_in(model.model_fields[str(part)].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model named somewhere in an annotation such as ``dict[str, Model] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)
