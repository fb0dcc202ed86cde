"""RocketMQ's own Java clients, unchanged, at a gateway: rows of spec/remoting-acceptance.md, which
`tests/classic_clients/java` plays."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from stratamq_bench.ports import free_port

from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.security.conftest import made
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, GATEWAY, INDEX, Broker

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

JAVA = Path(__file__).parent.parent / "classic_clients" / "java"
VERSIONS = ("4.9.8", "5.3.3")
ROOMS = (COMMITLOG, DISPATCHER, INDEX, DELIVERY, GATEWAY)
BINARY = "-Drocketmq.serialize.type=ROCKETMQ"
DEADLINE_S = 600
SENDS = "send-sync send-async send-oneway send-batch fields compressed too-big illegal-topic"
SENDS += " no-topic read-only-topic"
ALL_OF_A_CLIENT = (
    ("produce", "topic:*"),
    ("consume", "topic:*"),
    ("consume", "group:*"),
    ("scan", "broker"),
)
READS = "push push-orderly broadcast tag-filter sql-filter long-poll"
READS += " pull lite-pull first-pull quick-start new-group query offsets"
REST = "rebalance retry retry-new dlq delay-level timer trace tx-commit tx-rollback tx-check"
REST += " tx-late tx-conflict tx-other-connection"


@pytest.fixture
def address(tmp_path):
    with served(tmp_path) as address:
        yield address


@contextmanager
def served(tmp_path: Path, *further: str) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    settings = (
        *further,
        f"gateway.remoting_address={address}",
        f"commitlog.store_host={address}",
        "delivery.transaction_check_interval_ms=2000",
        "delivery.transaction_timeout_ms=2000",
    )
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        yield address
        assert "Traceback" not in broker.output(GATEWAY)


@pytest.mark.parametrize("version", VERSIONS)
def test_signed_requests_over_tls_are_served_and_others_refused(tmp_path, version):
    build(version)
    pki = made(tmp_path / "pki")
    permissions = Permissions(rules=[grant_of("shop", *one) for one in ALL_OF_A_CLIENT])
    secret = permissions.add_token("shop", "", signs=True)
    file = tmp_path / "permissions.json"
    file.write_bytes(dump(permissions))
    rows = ("send-sync", "send-batch", "push", "push-orderly", "retry-new", "tx-commit", "query")
    with served(tmp_path, *pki.settings(f"access.file={file}")) as address:
        tls, right, wrong = ("-Dtls.enable=true", f"-Dsecret={secret}", "-Dsecret=guessed")
        seen = run(version, address, *rows, options=f"{tls} -Dkey=shop {right}")
        assert seen == "".join(f"{row}\tok\n" for row in rows)
        refused = run(version, address, "send-sync", options=f"{tls} -Dkey=shop {wrong}")
        assert "MQClientException: No route info" in refused, "not even a route"


def run(version: str, *arguments: str, options: str = "") -> str:
    return play(version, *arguments, options=options).stdout


def play(version: str, *arguments: str, options: str = "") -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "CLIENT": version, "JAVA_OPTIONS": options}
    done = subprocess.run(
        [JAVA / "run", *arguments],
        env=given,
        cwd=JAVA / "target",  # some commands of tools leave files there
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DEADLINE_S,
    )
    assert done.returncode in (0, 1), done.stderr[-4_000:]
    return done


@cache
def build(version: str) -> None:
    (JAVA / "target").mkdir(exist_ok=True)
    with (JAVA / "target" / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(version, "127.0.0.1:1")


@pytest.mark.parametrize("rows", [SENDS, READS, REST], ids=["sends", "reads", "rest"])
@pytest.mark.parametrize("version", VERSIONS)
def test_clients_see_what_they_see_of_rocketmq(version, address, rows):
    build(version)
    assert run(version, address, *rows.split()) == "".join(f"{row}\tok\n" for row in rows.split())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_is_refused_at_once_where_none_are_made(tmp_path, version):
    build(version)
    with served(tmp_path, "gateway.creates_topics=false") as address:
        assert run(version, address, "no-topic-refused") == "no-topic-refused\tok\n"


def test_a_reply_reaches_who_waits_for_it(address):
    """With 4.9.8: `request` of 5.3.3 times out as soon as its message is sent, at RocketMQ too."""
    build(VERSIONS[0])
    assert run(VERSIONS[0], address, "request-reply") == "request-reply\tok\n"


def test_headers_may_be_binary(address):
    build(VERSIONS[-1])
    rows = ("send-sync", "send-batch", "push", "retry-new", "tx-commit", "query")
    seen = run(VERSIONS[-1], address, *rows, options=BINARY)
    assert seen == "".join(f"{row}\tok\n" for row in rows)
