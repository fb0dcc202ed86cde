"""RocketMQ 5's official clients, unchanged, at a gateway: rows of spec/gateway-acceptance.md, which
the programs of `tests/official_clients` play. They need Maven, Node.js with npm, Go, and package
indexes for the clients; the rows of a client whose program is not here are skipped.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from stratamq.client import Topic, connect
from stratamq.formats.topic_types import MessageType
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway.test_messaging import served
from tests.security.conftest import made

RUN_S, INSTALL_S = 600, 1_200
"""For a test without what installs its clients, and for that, which waits for package indexes."""

# Fixtures have a limit of their own: `build` ends by itself.
pytestmark = [pytest.mark.java, pytest.mark.timeout(RUN_S, func_only=True)]

PROGRAMS = Path(__file__).parent.parent / "official_clients"
PYTHON = "rocketmq-python-client==5.1.2"
JAVA = "5.2.0"
NODE = "rocketmq-client-nodejs@1.0.8"
GO = "github.com/apache/rocketmq-clients/golang/v5@v5.1.3"
TARGET = PROGRAMS / "target"
CLIENTS = ("java", "python", "node", "go")
NEEDED = {"node": "npm", "go": "go"}
DEADLINE_S = RUN_S - 60
TOPICS = {
    MessageType.NORMAL: ("normal", "pushed", "failing", "tagged", "given-back"),
    MessageType.FIFO: ("steps", "retried-steps", "poisoned-steps"),
    MessageType.DELAY: ("later", "taken-back"),
    MessageType.TRANSACTION: ("paid", "checked"),
}
ROWS = (
    *("normal-fields", "push-once", "max-attempts-dlq", "fifo-order", "fifo-retry-order", "delay"),
    *("tx-commit", "tx-check", "tag-filter", "wrong-topic", "nack", "fifo-dlq", "recall"),
)
RIGHTS = (("produce", "topic:*"), ("consume", "topic:*"), ("consume", "group:*"))


@pytest.fixture
def endpoint(tmp_path):
    with served(tmp_path) as (broker, address):
        prepare(broker.root)
        yield address


def prepare(root: Path) -> None:
    with connect(root) as client:
        for kind, names in TOPICS.items():
            for name in names:
                client.admin.create_topic(Topic(name, 4, 4, message_type=kind))
        client.admin.create_group("one-retry", retries=1)
        client.admin.create_group("poisoned", ordered=True, retries=1)
        for name in ("in-order", "retried-in-order"):
            client.admin.create_group(name, ordered=True)


@pytest.fixture(params=CLIENTS)
def client(request):
    build(request.param)
    return request.param


@pytest.fixture
def all_clients():
    for client in CLIENTS:
        build(client)
    return CLIENTS


def test_clients_see_what_they_are_to_see(client, endpoint):
    rows = [row for row in ROWS if client != "go" or row != "recall"]  # Go has no call for it
    assert play(client, endpoint, *rows) == "".join(f"{row}\tok\n" for row in rows)


def test_clients_with_tls_and_in_clear_reach_one_port(all_clients, tmp_path):
    """By their defaults: Java and Go have TLS with any certificate, Python and Node.js have not."""
    with served(tmp_path, *made(tmp_path / "pki").settings()) as (broker, endpoint):
        prepare(broker.root)
        for client in all_clients:
            assert play(client, endpoint, "normal-fields", tls=client in ("java", "go")) == (
                "normal-fields\tok\n"
            )


@pytest.mark.parametrize("client", ["java"], indirect=True)
def test_signed_calls_over_tls_are_served_and_others_refused(client, tmp_path):
    """With Java's defaults: TLS, and any certificate."""
    pki = made(tmp_path / "pki")
    permissions = Permissions(rules=[grant_of("shop", *one) for one in RIGHTS])
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    with served(tmp_path, *pki.settings(f"access.file={file}")) as (broker, endpoint):
        prepare(broker.root)
        rows = ("normal-fields", "tx-commit")
        known = f"-Dkey=shop -Dsecret={secret}"
        assert play(client, endpoint, *rows, options=known, tls=True) == "".join(
            f"{row}\tok\n" for row in rows
        )
        guessed = "-Dkey=shop -Dsecret=guessed"
        assert "ok" not in play(client, endpoint, "normal-fields", options=guessed, tls=True)


def play(client: str, *arguments: str, options: str = "", tls: bool = False) -> str:
    """What the program prints: a line for each row."""
    command = {
        "java": [PROGRAMS / "java" / "run"],
        "python": [python(), PROGRAMS / "rows.py"],
        "node": ["node", PROGRAMS / "node" / "rows.js"],
        "go": [TARGET / "go" / "rows"],
    }[client]
    of_client = {
        "CLIENT": JAVA,
        "JAVA_OPTIONS": f"-Dtls.enable={str(tls).lower()} {options}",
        "NODE_PATH": str(TARGET / "node" / "node_modules"),
        "rocketmq.client.enableSsl": str(tls).lower(),  # Go's own name
        "rocketmq.client.logRoot": str(TARGET / "go"),
    }
    done = subprocess.run(
        [*command, *arguments],
        env=os.environ | of_client,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
    )
    assert done.returncode in (0, 1), done.stderr[-4_000:]
    return done.stdout


def python() -> str:
    return str(TARGET / "python" / "bin" / "python")


@cache
def build(client: str) -> None:
    """Install the client, within `INSTALL_S`. One process does, others wait for it."""
    if (program := NEEDED.get(client)) and not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    TARGET.mkdir(exist_ok=True)
    place = TARGET / client
    with (TARGET / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        place.mkdir(exist_ok=True)
        for command in STEPS[client](place):
            subprocess.run(command, cwd=place, check=True, timeout=INSTALL_S / 3)
        if client in ("python", "node"):
            (place / "installed").touch()


def java_steps(place: Path) -> list[list[object]]:
    return [["env", f"CLIENT={JAVA}", PROGRAMS / "java" / "run", "127.0.0.1:1"]]


def python_steps(place: Path) -> list[list[object]]:
    if (place / "installed").exists():
        return []
    return [[sys.executable, "-m", "venv", place], [python(), "-m", "pip", "install", "-q", PYTHON]]


def node_steps(place: Path) -> list[list[object]]:
    if (place / "installed").exists():
        return []
    options = ("--no-audit", "--no-fund", "--silent", "--prefix", place)
    return [["npm", "install", *options, NODE]]


def go_steps(place: Path) -> list[list[object]]:
    source = (PROGRAMS / "go" / "rows.go").read_text()
    if (place / "rows").exists() and (place / "rows.go").read_text() == source:
        return []
    (place / "rows.go").write_text(source)
    (place / "go.mod").write_text("module rows\n\ngo 1.21\n")
    return [
        ["go", "get", GO],
        ["go", "mod", "tidy"],
        ["go", "build", "-o", "rows", "."],
    ]


STEPS = {"java": java_steps, "python": python_steps, "node": node_steps, "go": go_steps}
"""The commands that install each client into a directory, at most three."""
