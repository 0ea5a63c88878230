"""The commands put together, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from arena_pipeline.cli import (
    base_model,
    dataset,
    evaluation,
    experiments,
    housekeeping,
    judgement,
    ledger,
    status,
    verification,
    web,
)
from arena_pipeline.cli import run as run_command
from arena_pipeline.cli.screen import Stopped, complain
from arena_pipeline.errors import ArenaError, ConfigError

FAILED = 1
USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="arena",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    status,
    run_command,
    web,
    judgement,
    evaluation,
    dataset,
    verification,
    experiments,
    ledger,
    housekeeping,
    base_model,
):
    module.add_to(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status: 0 done, 1 a check failed, 2 wrong usage, 130 interrupted.

    Errors that a user can act on become one line on standard error; any other exception is a fault of this program
    and keeps its traceback.
    """
    try:
        returned = app(list(arguments), prog_name="arena", standalone_mode=False)
    except ConfigError as error:
        complain(error)
        return USAGE
    except (ArenaError, OSError) as error:
        complain(error)
        return FAILED
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "arena"
        message = " ".join(error.format_message().split())
        complain(f"{message.rstrip('.')}; see {command} --help")
        return error.exit_code
    except Stopped as error:
        complain(error)
        return INTERRUPTED
    except typer.Abort:
        complain("stopped: nothing was answered")
        return INTERRUPTED
    if returned == INTERRUPTED:
        # Typer's answer to Ctrl-C where no command has anything to say about it.
        complain("stopped")
    return returned if isinstance(returned, int) else 0
