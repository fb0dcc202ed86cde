"""What holds for every test: a busy machine is slow, and that is no failure."""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.support import sampling

settings.register_profile("stratamq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stratamq")

# Bytecode is kept, even where the environment asks otherwise: without it each service that a test
# starts compiles everything that it imports (1.4 s), and each run rewrites every test file.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that runs the tests in the background makes them ignore SIGINT, and what they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-call",
        action="store_true",
        help="crash and fail at every call of the disk, where a sample is the rule",
    )


def pytest_configure(config: pytest.Config) -> None:
    sampling.every_call = config.getoption("--every-call")
