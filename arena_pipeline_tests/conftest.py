"""What holds for every test: no network, one thread per process, no display, the same examples on every CI run."""

from __future__ import annotations

import ipaddress
import os
import signal
import sys
from typing import Any

# Before anything imports the libraries that read them once. Child processes inherit all of it.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", MPLBACKEND="Agg")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# The width of the terminal that the tests run in (pytest-xdist hands it on) is not what the output under test has.
os.environ.pop("COLUMNS", None)
# The tests themselves run side by side, one process per core; more threads in each only get in each other's way.
for _threads in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


MICRO_SECONDS = 900
"""Time for a test that may be the first to need the shared lineage, which takes minutes on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests on the shared lineage the time that making it takes."""
    for item in items:
        if "micro" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(MICRO_SECONDS))


# A shell makes its background jobs ignore Ctrl-C, and children inherit that: tests send it to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _refuse_outside_connections(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: a socket may be connected to this machine only, by path or by loopback address."""
    if event != "socket.connect":
        return
    address = arguments[1]
    if not isinstance(address, tuple):
        return
    try:
        inside = ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        inside = address[0] == "localhost"
    if not inside:
        raise PermissionError(f"a test tried to connect to {address[0]}: tests use this machine only")


sys.addaudithook(_refuse_outside_connections)
