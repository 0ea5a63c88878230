"""Errors that a user can act on: each message is one line that names the place, what was found and what is allowed."""

from __future__ import annotations


class ArenaError(Exception):
    """Base of every error this project raises on purpose; the command line prints it without a traceback."""


class ConfigError(ArenaError):
    """An experiment, prompt pack, gates file or command-line value is not of the form it must have."""


class DatasetError(ArenaError):
    """A dataset directory, one of its files or one of its rows breaks a rule of the dataset specification."""


class IntegrityError(ArenaError):
    """Bytes on disk differ from the hash recorded for them."""

    def __init__(self, file: object, expected: str, found: str, advice: str = "") -> None:
        self.file = str(file)
        self.expected = expected
        self.found = found
        super().__init__(f"{file}: expected sha256 {expected}, found {found}" + (f"; {advice}" if advice else ""))


class PinMismatch(IntegrityError):
    """A pinned input is not the input that data/pins.toml names."""


class SealedSetRefused(ArenaError):
    """The sealed set was already opened for this experiment by another adapter, or was not opened at all."""


class EvaluationError(ArenaError):
    """Responses, rows or summaries are incomplete, or are not comparable with each other."""


class TrainingError(ArenaError):
    """Training data or an adapter fails one of the proofs that precede or follow training."""


class MachineError(ArenaError):
    """The machine lacks something the experiment says it needs."""


class ProcessError(ArenaError):
    """A child process ended without finishing its task."""


class ArtifactError(ArenaError):
    """The artifact store was asked for, or handed, something that it cannot vouch for."""


class LockHeld(ArenaError):
    """Another process is doing this work at this moment; the message names it."""


class LedgerError(ArenaError):
    """The ledger of sealed-set openings cannot be reached, or would have to contradict what it records."""
