"""Reading experiment files; every problem in one is told in a line of its own."""

from __future__ import annotations

from pathlib import Path

from arena_pipeline.errors import ConfigError
from arena_pipeline.experiments.experiment import Experiment
from arena_pipeline.provenance.config_files import check_config, read_toml

EXPERIMENTS = "data/experiments"
"""Folder of the experiment files, below the project."""


def list_experiments(directory: Path) -> list[str]:
    """Names of the experiments in a folder, sorted; the files are not read."""
    return sorted(path.stem for path in directory.glob("*.toml"))


def load_experiment(experiment: str | Path, root: Path) -> Experiment:
    """Read and check an experiment: by name from ``data/experiments`` below ``root``, or by the path of its file.

    Raises ``ConfigError`` with one line for each problem: file, key, what was found, what is allowed.
    """
    path = Path(experiment)
    if path.suffix == ".toml":
        path = root / path
    else:
        folder = root / EXPERIMENTS
        path = folder / f"{experiment}.toml"
        if not path.is_file():
            known = ", ".join(list_experiments(folder)) or "none"
            raise ConfigError(f"experiment {experiment}: no file {EXPERIMENTS}/{experiment}.toml; there are: {known}")
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    data = read_toml(path, shown)
    if "name" in data:
        raise ConfigError(f"{shown}: name: found {data['name']!r}; an experiment is named by its file, leave it out")
    return check_config(Experiment, data | {"name": path.stem}, shown)


def load_experiments(root: Path) -> list[Experiment]:
    """All experiments below ``root``, sorted by name; ``ConfigError`` for the first file that is not valid."""
    return [load_experiment(name, root) for name in list_experiments(root / EXPERIMENTS)]
