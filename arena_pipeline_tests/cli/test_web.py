"""`arena ui`: on this machine only, on the instance that `arena run` uses, and gone without a trace however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arena_pipeline_tests.cli.conftest import PROGRAM, ROOT, Arena
from arena_pipeline_tests.processes.test_launcher import wait_for_end


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def ask(port: int, query: str) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json"},
    )
    # A proxy of this machine has no say in who talks to itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return json.load(answer)["data"]


def processes() -> list[tuple[int, int, int]]:
    """(number, parent, session) of every process of this machine that has not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                found.append((int(path.parent.name), int(parent), int(session)))
    return found


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_ui_shows_the_lineage_and_ends_with_all_its_processes(project: Path, end: signal.Signals) -> None:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, "ui", "--port", str(port)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
    ) as arena:
        try:
            assert arena.stdout is not None
            assert f"Dagster UI: http://127.0.0.1:{port}" in arena.stdout.readline()
            found = ask(
                port,
                "{ assetNodes { assetKey { path } } instance { daemonHealth { allDaemonStatuses { daemonType } } } "
                'partitionSetOrError: assetNodeOrError(assetKey: {path: ["gate_verdicts"]}) '
                "{ ... on AssetNode { partitionKeys } } runsOrError { ... on Runs { results { id } } } }",
            )
            assert len(found["assetNodes"]) == 21
            assert found["partitionSetOrError"]["partitionKeys"] == ["micro", "stage1", "tiny-cpu"]
            assert found["runsOrError"]["results"] == [], "opening the UI starts nothing"
            (child,) = (number for number, parent, _ in processes() if parent == arena.pid)
            servers = [number for number, _, session in processes() if session == child]
            assert servers != [child]
        finally:
            arena.send_signal(end)
            returned = arena.wait(timeout=120)
    if end is signal.SIGKILL:
        # It had no time for anything: the servers find out by themselves.
        wait_for_end(*servers)
    else:
        assert returned == 0
    assert [number for number, _, session in processes() if session == child] == []
    with socket.socket() as connection:
        assert connection.connect_ex(("127.0.0.1", port)) != 0


def test_a_port_that_is_taken(arena: Arena, project: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        outcome = arena("ui", "--port", port)
    assert outcome.status == 2
    assert f"--port {port}: something listens there already; choose another port" in outcome.error
    assert not (project / "storage" / "history").exists()
