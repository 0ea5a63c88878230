"""Where the project, its storage and its ledger lie: from the environment, so that no configuration holds a path."""

from __future__ import annotations

import os
from pathlib import Path

from arena_pipeline.errors import ConfigError
from arena_pipeline.provenance.ledger import sqlite_url

PINS_FILE = "data/pins.toml"
GATES_FILE = "data/gates.toml"

_CLONE = Path(__file__).resolve().parents[2]


def project_root() -> Path:
    """The project: ARENA_PROJECT_DIR, else the clone that this package lies in.

    Raises ``ConfigError`` if it holds no ``data/pins.toml``.
    """
    root = Path(os.environ.get("ARENA_PROJECT_DIR") or _CLONE).absolute()
    if not (root / PINS_FILE).is_file():
        raise ConfigError(f"{root}: no {PINS_FILE} there; name the folder of a clone in ARENA_PROJECT_DIR")
    return root


def storage_directory() -> Path:
    """Everything that runs write: ARENA_STORAGE_DIR, else ``storage`` below the project."""
    return Path(os.environ.get("ARENA_STORAGE_DIR") or project_root() / "storage").absolute()


def ledger_address() -> str:
    """The database of the ledger: ARENA_LEDGER_URL, else the file ``ledger.sqlite`` in the storage directory."""
    return os.environ.get("ARENA_LEDGER_URL") or str(sqlite_url(storage_directory() / "ledger.sqlite"))
