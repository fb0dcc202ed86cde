"""RocketMQ 5's official clients, unchanged, at a gateway: rows of spec/gateway-acceptance.md, which
the programs of `tests/official_clients` play. They need Maven and a package index for the clients.
"""

import fcntl
import os
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

pytestmark = pytest.mark.java

PROGRAMS = Path(__file__).parent.parent / "official_clients"
PYTHON = "rocketmq-python-client==5.1.2"
JAVA = "5.2.0"
DEADLINE_S = 900
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


@pytest.mark.parametrize("client", ["java", "python"])
def test_clients_see_what_they_are_to_see(client, endpoint):
    assert play(client, endpoint, *ROWS) == "".join(f"{row}\tok\n" for row in ROWS)


def test_signed_calls_over_tls_are_served_and_others_refused(tmp_path):
    """With Java's defaults: TLS, and any certificate."""
    pki = made(tmp_path / "pki")
    permissions = Permissions(rules=[grant_of("shop", *one) for one in RIGHTS])
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    with served(tmp_path, *pki.settings(f"access.file={file}")) as (broker, endpoint):
        prepare(broker.root)
        rows = ("normal-fields", "tx-commit")
        known = f"-Dtls.enable=true -Dkey=shop -Dsecret={secret}"
        assert play("java", endpoint, *rows, options=known) == "".join(
            f"{row}\tok\n" for row in rows
        )
        guessed = "-Dtls.enable=true -Dkey=shop -Dsecret=guessed"
        assert "ok" not in play("java", endpoint, "normal-fields", options=guessed)


def play(client: str, *arguments: str, options: str = "") -> str:
    """What the program prints: a line for each row."""
    if client == "java":
        command = [str(PROGRAMS / "java" / "run"), *arguments]
    else:
        command = [python(), str(PROGRAMS / "rows.py"), *arguments]
    build(client)
    done = subprocess.run(
        command,
        env={**os.environ, "CLIENT": JAVA, "JAVA_OPTIONS": options},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
    )
    assert done.returncode in (0, 1), done.stderr[-4_000:]
    return done.stdout


def python() -> str:
    return str(PROGRAMS / "target" / "python" / "bin" / "python")


@cache
def build(client: str) -> None:
    """Install the client. One process does, others wait for it."""
    target = PROGRAMS / "target"
    target.mkdir(exist_ok=True)
    with (target / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if client == "python" and not (target / "python" / "installed").exists():
            subprocess.run([sys.executable, "-m", "venv", target / "python"], check=True)
            subprocess.run([python(), "-m", "pip", "install", "-q", PYTHON], check=True)
            (target / "python" / "installed").touch()
        elif client == "java":
            environment = {**os.environ, "CLIENT": JAVA}
            subprocess.run([PROGRAMS / "java" / "run", "127.0.0.1:1"], env=environment, check=True)
