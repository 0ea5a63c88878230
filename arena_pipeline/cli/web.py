"""`arena ui`: Dagster's webserver and daemon on this project's instance."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from arena_pipeline.cli.project import Project, find_project
from arena_pipeline.cli.screen import Screen
from arena_pipeline.errors import ConfigError, ProcessError

LOOPBACK = "127.0.0.1"
WATCHDOG = "arena_pipeline.processes.watchdog"
_STOP_SECONDS = 30


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ui", epilog="Example: arena ui --port 3000")(serve)


def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the address that it prints.")] = 3000,
) -> None:
    """Open the Dagster UI on the instance that `arena run` uses; Ctrl-C ends it.

    It listens on this machine only. Opening it starts no run: automation is off.
    """
    project = find_project()
    project.export()
    if not _is_free(port):
        raise ConfigError(f"--port {port}: something listens there already; choose another port, or end it")
    # Whoever ends this process politely ends the UI too; and a shell that started it in the background had it, and so
    # its children, ignore Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    _prepare(project)
    screen = Screen()
    child = _start(project, port)
    try:
        if not _wait_until_it_answers(child, port):
            raise ProcessError(f"the Dagster UI ended with status {child.wait()} before it answered; see above")
        screen.line(f"Dagster UI: http://{LOOPBACK}:{port}  (Ctrl-C ends it)", "bold")
        status = child.wait()
    except KeyboardInterrupt:
        status = 0
    finally:
        _stop(child)
    if status != 0:
        raise ProcessError(f"the Dagster UI ended with status {status}; see above")


def _prepare(project: Project) -> None:
    """Add a partition for every experiment, and report runs as failed whose process is gone."""
    from arena_pipeline.cli.dead_runs import report_dead_runs
    from arena_pipeline.experiments import EXPERIMENTS, list_experiments
    from arena_pipeline.resources.instance import open_instance
    from arena_pipeline.resources.partitions import add_experiments

    with open_instance() as instance:
        add_experiments(instance, list_experiments(project.root / EXPERIMENTS))
        report_dead_runs(instance)


def _start(project: Project, port: int) -> subprocess.Popen[bytes]:
    """Start webserver and daemon, in a process group of their own that ends with this process, however that ends."""
    # It recommends a successor that is not installed here.
    quiet = ("-W", "ignore:Function `dev_command` is superseded")
    command = (sys.executable, *quiet, "-m", WATCHDOG, "dagster", "dev", "--workspace", "workspace.yaml")
    options = ("--host", LOOPBACK, "--port", str(port), "--log-level", "warning")
    # What Dagster has to say goes to standard error; standard output has the address alone.
    return subprocess.Popen(
        (*command, *options), cwd=project.root, stdin=subprocess.PIPE, stdout=2, start_new_session=True
    )


def _wait_until_it_answers(child: subprocess.Popen[bytes], port: int) -> bool:
    while child.poll() is None:
        if not _is_free(port):
            return True
        time.sleep(0.2)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex((LOOPBACK, port)) != 0


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the whole group: politely first, so that webserver and daemon end their own children."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
