"""Where the project and its storage lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arena_pipeline.errors import ConfigError

PINS = Path("data/pins.toml")
"""The file, below a project's root, by which the root is known."""
DEFAULT_EXPERIMENT = "tiny-cpu"

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Project:
    """Absolute paths of the project's root and of the folder that runs write to."""

    root: Path
    storage: Path

    @property
    def pins_file(self) -> Path:
        """The committed pins."""
        return self.root / PINS

    @property
    def recorded_pins(self) -> Path:
        """The hashes recorded of inputs that have no pin of their own."""
        return self.storage / "recorded_pins.json"

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
    """The project: ARENA_PROJECT_DIR, else the nearest folder upwards from here, else the package's own clone.

    Storage is ARENA_STORAGE_DIR, else ``storage`` below the root. Raises ``ConfigError`` if no folder holds
    ``data/pins.toml``.
    """
    root = _root()
    return Project(root, Path(os.environ.get("ARENA_STORAGE_DIR") or root / "storage").absolute())


def _root() -> Path:
    named = os.environ.get("ARENA_PROJECT_DIR")
    if named:
        root = Path(named).absolute()
        if not (root / PINS).is_file():
            raise ConfigError(f"ARENA_PROJECT_DIR is {named!r}, where no {PINS} is; name the folder of a clone")
        return root
    here = Path.cwd()
    for folder in (here, *here.parents, _PACKAGE_PARENT):
        if (folder / PINS).is_file():
            return folder
    raise ConfigError(
        f"no {PINS} in {here} or a folder above it; go to the folder of a clone, or name it in ARENA_PROJECT_DIR"
    )
