"""This project's Dagster instance: its class, which dagster.yaml names, and the one way to open it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, Field
from dagster._core.instance.ref import InstanceRef

from arena_pipeline.errors import ConfigError
from arena_pipeline.resources.locations import project_root, storage_directory


class ArenaInstance(DagsterInstance):
    """A stock instance that refuses to load where its storage is not named, and tells the shell how to start.

    Dagster calls ``config_schema`` before it reads the rest of dagster.yaml, so this message comes instead of its own,
    which says that a variable is missing but not how this project is started.
    """

    @classmethod
    def config_schema(cls) -> Mapping[str, Field]:
        """No keys of its own. Raises ``ConfigError`` unless ARENA_STORAGE_DIR is an absolute path."""
        found = os.environ.get("ARENA_STORAGE_DIR")
        if found is None or not Path(found).is_absolute():
            raise ConfigError(
                f"ARENA_STORAGE_DIR is {'not set' if found is None else repr(found)}, the absolute path of the storage "
                "folder is needed: start with `arena ui` or `make ui`, which set it, or export it and DAGSTER_HOME"
            )
        return {}

    @classmethod
    def config_defaults(cls, base_dir: str) -> Mapping[str, Any]:
        """The defaults of a stock instance whose folder is ``base_dir``."""
        return InstanceRef.config_defaults(base_dir)


@contextmanager
def open_instance() -> Iterator[DagsterInstance]:
    """The Dagster instance of the project, with its storage in the storage directory."""
    storage = storage_directory()
    storage.mkdir(parents=True, exist_ok=True)
    os.environ["ARENA_STORAGE_DIR"] = str(storage)
    with DagsterInstance.from_config(str(project_root())) as instance:
        yield instance
