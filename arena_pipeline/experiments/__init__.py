"""Experiments: TOML files that say everything about a run, checked before anything starts (design, "Experiments")."""

from arena_pipeline.experiments.experiment import (
    RESULT_CHECKPOINTS,
    STANDARD_SEEDS,
    BaseModelChoice,
    DatasetChoice,
    Evaluation,
    Experiment,
    Machine,
    Serving,
)
from arena_pipeline.experiments.loading import EXPERIMENTS, list_experiments, load_experiment, load_experiments
from arena_pipeline.experiments.preflight import Check, Found, check_machine, measure_machine, slow_settings
from arena_pipeline.experiments.recipe import Mixture, Recipe, Smoke

__all__ = [
    "EXPERIMENTS",
    "RESULT_CHECKPOINTS",
    "STANDARD_SEEDS",
    "BaseModelChoice",
    "Check",
    "DatasetChoice",
    "Evaluation",
    "Experiment",
    "Found",
    "Machine",
    "Mixture",
    "Recipe",
    "Serving",
    "Smoke",
    "check_machine",
    "list_experiments",
    "load_experiment",
    "load_experiments",
    "measure_machine",
    "slow_settings",
]
