"""What holds for every test: a busy machine is slow, and that is no failure."""

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import sampling
from tests.support.costs import Costs
from tests.support.java import SPARK_OPTIONS
from tests.support.loops import LoopsOfTests

settings.register_profile("stratamq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stratamq")

# Bytecode is kept, even where the environment asks otherwise: without it each service that a test
# starts compiles everything that it imports (1.4 s), and each run rewrites every test file.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.update(SPARK_OPTIONS)

asyncio.set_event_loop_policy(LoopsOfTests())

# A shell that runs the tests in the background makes them ignore SIGINT, and what they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-call",
        action="store_true",
        help="crash and fail at every call of the disk, where a sample is the rule",
    )
    parser.addoption(
        "--costs",
        type=Path,
        help="write each test's processor time into this file, costliest first",
    )
    parser.addoption(
        "--slice", metavar="K/N", help="run one of N parts; head/N: the one that the commit chooses"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if which := config.getoption("--slice"):
        kept = set(sampling.one_part(which, items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_configure(config: pytest.Config) -> None:
    sampling.every_call = config.getoption("--every-call")
    only_slow = config.option.markexpr.startswith("slow and ")
    config.pluginmanager.register(Costs(config.getoption("--costs"), only_slow=only_slow))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each reason once, with what to install, and how many tests it concerns."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


LOOP_TIMEOUT_S = 240


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine on one event loop in a thread, for a whole module, and waits for its
    result: grpc.aio must never see two loops at a time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-loop")
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(LOOP_TIMEOUT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
