"""A real broker for the tests of a file, and commands that are run against it."""

import io
import json
from types import SimpleNamespace

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.client import connect
from tests.cli.processes import NO_PROFILES
from tests.support.brokers import broker_fixture
from tests.support.waiting import until_dispatched, until_indexed

SETTINGS = (
    "commitlog.segment_bytes=1048576",
    "index.index_slots=1000",
    "index.index_items=4000",
)


broker = broker_fixture(*SETTINGS)


@pytest.fixture(autouse=True)
def no_profiles(monkeypatch):
    """The profiles of the user who runs the tests are not read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", NO_PROFILES)


@pytest.fixture
def stratamq(broker, capsysbinary, monkeypatch):
    """Runs a command: exit code, standard output as text and as bytes, standard error."""
    for variable in ("STRATAMQ_DATA", "STRATAMQ_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, stdin: bytes = b"", data: bool = True) -> SimpleNamespace:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        where = ["--data", str(broker.root)] if data else []
        code = command_line.run([*arguments, *where])
        captured = capsysbinary.readouterr()
        out = captured.out.decode("utf-8", "backslashreplace")
        return SimpleNamespace(code=code, out=out, raw=captured.out, err=captured.err.decode())

    return call


@pytest.fixture
def rows(stratamq):
    """The JSON lines of a command that must succeed."""

    def call(*arguments: str, stdin: bytes = b"") -> list[dict]:
        done = stratamq(*arguments, "--output", "json", stdin=stdin)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return call


@pytest.fixture
def caught_up(broker):
    """Waits until everything stored can be consumed and found."""

    def wait() -> None:
        with connect(broker.root) as client:
            until_dispatched(client)
            until_indexed(client)

    return wait
