"""Where the project, its storage and its ledger lie: from the environment, so that no configuration holds a path."""

from __future__ import annotations

import os
from pathlib import Path

from arena_pipeline.errors import ConfigError

PINS_FILE = "data/pins.toml"
"""The file, below a project's root, by which the root is known."""
GATES_FILE = "data/gates.toml"
ARTIFACTS = "artifacts"
"""The artifact store, below the storage directory."""
RECORDED_PINS = "recorded_pins.json"
"""The hashes recorded of inputs that have no pin of their own, below the storage directory."""

_CLONE = Path(__file__).resolve().parents[2]


def project_root() -> Path:
    """The project: ARENA_PROJECT_DIR, else the nearest folder upwards from here, else the package's own clone.

    Raises ``ConfigError`` if no folder holds ``data/pins.toml``.
    """
    if named := os.environ.get("ARENA_PROJECT_DIR"):
        root = Path(named).absolute()
        if not (root / PINS_FILE).is_file():
            raise ConfigError(f"ARENA_PROJECT_DIR is {named!r}, where no {PINS_FILE} is; name the folder of a clone")
        return root
    here = Path.cwd()
    for folder in (here, *here.parents, _CLONE):
        if (folder / PINS_FILE).is_file():
            return folder
    raise ConfigError(
        f"no {PINS_FILE} in {here} or a folder above it; go to the folder of a clone, or name it in ARENA_PROJECT_DIR"
    )


def storage_directory() -> Path:
    """Everything that runs write: ARENA_STORAGE_DIR, else ``storage`` below the project."""
    return Path(os.environ.get("ARENA_STORAGE_DIR") or project_root() / "storage").absolute()


def ledger_address() -> str:
    """The database of the ledger: ARENA_LEDGER_URL, else the file ``ledger.sqlite`` in the storage directory."""
    # Here and not above: the command line looks for the project before it needs a database.
    from arena_pipeline.provenance.ledger import sqlite_url

    return os.environ.get("ARENA_LEDGER_URL") or str(sqlite_url(storage_directory() / "ledger.sqlite"))
