"""A real PostgreSQL server for tests: a throw-away cluster in a temporary folder, reached by a socket file only."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DEBIAN_SERVERS = Path("/usr/lib/postgresql")


def server_programs() -> Path:
    """Folder of the newest server's programs. Without any the test is skipped, on the CI machine it fails."""
    folders = sorted(DEBIAN_SERVERS.glob("*/bin"), key=lambda path: int(path.parent.name))
    if not folders:
        message = f"no PostgreSQL server below {DEBIAN_SERVERS}: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folders[-1]


def _run(*command: object) -> None:
    """Run a server program, as the user postgres where this is root: the server refuses to run as root."""
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    words = [*prefix, *map(str, command)]
    # Files, not pipes: the server that pg_ctl leaves running would keep a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        if subprocess.run(words, stdout=output, stderr=subprocess.STDOUT, cwd="/").returncode != 0:
            output.seek(0)
            pytest.fail(f"{' '.join(words)}: {output.read().decode()}")


@contextmanager
def throwaway_cluster() -> Iterator[str]:
    """Start a cluster, yield the address of its database ``postgres`` for SQLAlchemy, stop it and remove its files."""
    programs = server_programs()
    # Not pytest's folder: that is closed to the user postgres, and its path is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="arena-pg-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        data = folder / "data"
        _run(programs / "initdb", "-D", data, "-U", "arena", "--auth", "trust", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c shared_buffers=16MB"
        _run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://arena@/postgres?host={folder}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
