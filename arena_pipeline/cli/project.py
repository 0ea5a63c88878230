"""Where the project and its storage lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arena_pipeline.resources.locations import ARTIFACTS, PINS_FILE, RECORDED_PINS, project_root, storage_directory

DEFAULT_EXPERIMENT = "tiny-cpu"


@dataclass(frozen=True)
class Project:
    """Absolute paths of the project's root and of the folder that runs write to."""

    root: Path
    storage: Path

    @property
    def pins_file(self) -> Path:
        """The committed pins."""
        return self.root / PINS_FILE

    @property
    def recorded_pins(self) -> Path:
        """The hashes recorded of inputs that have no pin of their own."""
        return self.storage / RECORDED_PINS

    @property
    def artifacts(self) -> Path:
        """The root of the artifact store."""
        return self.storage / ARTIFACTS

    @property
    def has_run(self) -> bool:
        """Whether there is an instance: commands that only look must not make one."""
        return (self.storage / "history").is_dir()

    def shown(self, path: Path) -> str:
        """A path as messages name it: relative to the root where it lies inside."""
        path = path.absolute()
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def export(self) -> None:
        """Set this process's environment so that Dagster, and every child process, uses this project's instance."""
        self.storage.mkdir(parents=True, exist_ok=True)
        os.environ.update(
            DAGSTER_HOME=str(self.root), ARENA_STORAGE_DIR=str(self.storage), ARENA_PROJECT_DIR=str(self.root)
        )


def find_project() -> Project:
    """The project that the environment names, or that lies around the current folder; ``ConfigError`` without one."""
    return Project(project_root(), storage_directory())
