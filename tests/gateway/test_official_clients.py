"""RocketMQ 5's official clients, unchanged, at a gateway: rows of spec/gateway-acceptance.md, which
the programs of `tests/official_clients` play. They need Maven, Node.js with npm, Go, and package
indexes for the clients; the rows of a client whose program is not here are skipped.
"""

import fcntl
import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import grpc
import pytest
from stratamq_bench.ports import free_port
from stratamq_torture.processes.hostile import resident_bytes
from stratamq_torture.processes.wire import NOWHERE, Wire

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Client, Topic, connect
from stratamq.formats.topic_types import MessageType
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.gateway import messaging
from tests.gateway.recorded_settings import recording
from tests.gateway.test_brokers import grpc_gateway, pair
from tests.gateway.test_messaging import ROOMS, served
from tests.security.conftest import made
from tests.support.brokers import GATEWAY, INDEX
from tests.support.waiting import until

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
    MessageType.NORMAL: (
        *("normal", "pushed", "failing", "tagged", "given-back", "waits", "short", "at-once"),
        *("bodies", "too-big", "wrong-type", "selected", "comes-again", "hidden-on", "expired"),
        *("foreign", "lossless", "durable", "spread", "older", "slow", "reached"),
        *("vanished", "many"),
    ),
    MessageType.FIFO: ("steps", "retried-steps", "poisoned-steps", "blocked", "one-queue"),
    MessageType.DELAY: ("later", "taken-back", "past"),
    MessageType.TRANSACTION: ("paid", "checked", "rolled-back", "late", "crashed"),
    MessageType.MIXED: ("mixed", "odd"),
}
PERMISSIONS = {"no-write": 4, "no-read": 2}
ORDERED = ("in-order", "retried-in-order", "blocks", "reads-one-queue")
ROWS = (
    *("normal-fields", "push-once", "max-attempts-dlq", "fifo-order", "fifo-retry-order", "delay"),
    *("tx-commit", "tx-check", "tag-filter", "wrong-topic", "nack", "fifo-dlq", "recall"),
)
WAITING_ROWS = (
    *("long-poll-wakes", "long-poll-short", "receive-before-settings", "bodies", "too-big"),
    *("no-write-no-read", "wrong-type", "mixed-topic", "sql-filter", "delay-past", "redeliver"),
    *("extend", "old-handles", "foreign-handle", "spread", "new-group", "fifo-block"),
    *("tx-rollback", "tx-crash", "bad-fields"),
)
"""They wait more than they work: some are played at once."""
KILLED_ROWS = ("durable", "fifo-stable-queue", "tx-late", "reconnect")
"""Every process of the broker is killed in the middle of each of them."""
AT_ONCE = 5
MANY_CLIENTS = int(os.environ.get("STRATAMQ_TEST_CLIENTS", "40"))
MOST_BYTES_A_CLIENT = 1 << 20
SENDS = 200
RIGHTS = (("produce", "topic:*"), ("consume", "topic:*"), ("consume", "group:*"))


@pytest.fixture
def broker(tmp_path):
    with served(tmp_path) as (broker, _):
        prepare(broker.root)
        yield broker


def prepare(root: Path) -> None:
    with connect(root) as client:
        for kind, names in TOPICS.items():
            for name in names:
                client.admin.create_topic(Topic(name, 4, 4, message_type=kind))
        for name, permission in PERMISSIONS.items():
            client.admin.create_topic(Topic(name, 1, 1, permission=permission))
        client.admin.create_group("one-retry", retries=1)
        client.admin.create_group("poisoned", ordered=True, retries=1)
        for name in ORDERED:
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


def test_clients_see_what_they_are_to_see(client, broker):
    rows = [row for row in ROWS if client != "go" or row != "recall"]  # Go has no call for it
    assert play(client, grpc_gateway(broker), *rows) == "".join(f"{row}\tok\n" for row in rows)
    broker.start([INDEX])
    with connect(broker.root) as reader:
        require_stored(reader)


def require_stored(reader: Client) -> None:
    """normal-stored: what normal-fields has sent is stored as RocketMQ stores it."""
    (found,) = until(lambda: reader.query_key("normal", "k1").messages, "its key is indexed")
    assert reader.query_key("normal", found.unique_key).messages == [found]
    born = int(found.properties["BORN_TIMESTAMP"])
    assert found.properties["__BORNHOST"] and abs(born - found.store_timestamp_ms) < 3_600_000
    assert found.properties["KEYS"].split(" ")[0] == "k1"
    assert (found.sys_flag, found.properties["UNIQ_KEY"]) == (0, found.unique_key)
    wanted = {
        "colour": "blau ü",
        "TAGS": "paid",
        "PGROUP": "normal",
        "RECONSUME_TIME": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert wanted.items() <= found.properties.items()


def test_rows_that_wait(client, broker):
    endpoint = grpc_gateway(broker)
    shares = [("slow-consumer-renew",)]  # as long as each of the others
    shares += [WAITING_ROWS[number::AT_ONCE] for number in range(AT_ONCE)]
    wanted = [f"{row}\tok" for row in ("client-gone", *itertools.chain(*shares))]

    def vanish() -> str:
        return play(client, endpoint, "vanishes") + play(client, endpoint, "client-gone")

    with ThreadPoolExecutor(len(shares) + 1) as threads:
        gone = threads.submit(vanish)
        said = threads.map(lambda rows: play(client, endpoint, *rows), shares)
        assert sorted(("".join(said) + gone.result()).splitlines()) == sorted(wanted)


def test_what_was_answered_holds_when_every_process_is_killed(client, tmp_path):
    settings = (
        f"gateway.grpc_address=127.0.0.1:{free_port()}",
        "delivery.transaction_check_max=1000",  # none is given up meanwhile
    )
    with served(tmp_path, *settings) as (broker, endpoint):
        prepare(broker.root)

        def kill() -> None:
            for room in ROOMS:
                broker.kill(room)
            broker.start(ROOMS)

        for row in KILLED_ROWS:
            assert play(client, endpoint, row, kill=kill) == f"{row}\tok\n"


def test_no_answered_message_is_lost_and_no_acknowledged_one_comes_again(client, tmp_path):
    """Any process is killed at a time. ROW_MESSAGES=10000 sends so many."""
    chosen = random.Random(1)
    with served(tmp_path, f"gateway.grpc_address=127.0.0.1:{free_port()}") as (broker, endpoint):
        prepare(broker.root)

        def kill() -> None:
            victims = chosen.sample(ROOMS, chosen.randint(1, len(ROOMS)))
            for room in victims:
                broker.kill(room)
            broker.start(victims)

        assert play(client, endpoint, "at-least-once", kill=kill) == "at-least-once\tok\n"


def test_the_settings_of_every_kind_of_client_are_complete(client, broker):
    """settings-complete: on their way to clients that work with them."""
    rows = ("push-once", "normal-fields", "fifo-retry-order")
    with recording(grpc_gateway(broker)) as (endpoint, answered):
        assert play(client, endpoint, *rows) == "".join(f"{row}\tok\n" for row in rows)
    kinds = {pb.PRODUCER, pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER}
    assert {given.settings.client_type for _, given in answered} == kinds
    for asked, given in answered:
        require_complete(asked, given)


def require_complete(asked: pb.Settings, given: pb.TelemetryCommand) -> None:
    told, kind = given.settings, asked.WhichOneof("pub_sub")
    assert given.status.code == pb.OK and told.WhichOneof("pub_sub") == kind
    for name in ("client_type", "access_point", "request_timeout", "user_agent"):
        assert getattr(told, name) == getattr(asked, name), name
    backoff = told.backoff_policy
    assert backoff.WhichOneof("strategy") == "exponential_backoff" and not told.metric.on
    delays = backoff.exponential_backoff
    assert 0 < delays.initial.ToMilliseconds() < delays.max.ToMilliseconds()
    if kind == "publishing":
        assert told.publishing.topics == asked.publishing.topics
        assert (told.publishing.max_body_size, backoff.max_attempts) == (4 << 20, 3)
        assert told.publishing.validate_message_type
        return
    subscription, ordered = told.subscription, asked.subscription.group.name in ORDERED
    assert subscription.subscriptions == asked.subscription.subscriptions
    assert (subscription.fifo, backoff.max_attempts) == (ordered, 17)
    one_by_one = ordered and asked.user_agent.language == pb.GOLANG
    assert subscription.receive_batch_size == (1 if one_by_one else 32)
    assert subscription.long_polling_timeout.seconds == 20
    assert not delays.initial.nanos and not delays.max.nanos, "Node.js reads whole seconds"
    assert (delays.max.seconds, delays.multiplier) == ((30, 1.5) if ordered else (7_200, 2))


def test_many_clients_wait_at_one_gateway_and_others_are_served(all_clients, broker, monkeypatch):
    """many-clients: MANY_CLIENTS of them, each with Telemetry and a receive that waits."""
    endpoint = grpc_gateway(broker)
    monkeypatch.setenv("ROW_CLIENTS", str(MANY_CLIENTS // len(CLIENTS)))
    before, of_gateway = resident_bytes(broker.pid(GATEWAY)), broker.pid(GATEWAY)
    wait, seen = threading.Barrier(len(CLIENTS) + 1), threading.Event()

    def stay() -> None:
        wait.wait(DEADLINE_S)
        seen.wait(DEADLINE_S)

    with (
        grpc.insecure_channel(endpoint) as channel,
        ThreadPoolExecutor(len(CLIENTS)) as threads,
        connect(broker.root) as own,
    ):
        sender = messaging.Client(channel)
        quiet_ms = sends(sender, "normal")
        said = [threads.submit(play, one, endpoint, "many-clients", kill=stay) for one in CLIENTS]
        try:
            wait.wait(DEADLINE_S)
            beside_ms = sends(sender, "many")
            until(lambda: sum(one.lag for one in own.groups("many")) == 0, "all have come")
            grown = resident_bytes(of_gateway) - before
        finally:
            wait.abort()
            seen.set()
        assert [one.result() for one in said] == ["many-clients\tok\n"] * len(CLIENTS)
    assert broker.pid(GATEWAY) == of_gateway and grown < MANY_CLIENTS * MOST_BYTES_A_CLIENT
    print(f"{MANY_CLIENTS} clients: {grown >> 20} MiB; ms of a send {quiet_ms} {beside_ms}")


def sends(sender: messaging.Client, topic: str) -> list[float]:
    """The median of their times, and the ninth of ten, in ms."""
    took_ms = []
    for _ in range(SENDS):
        began = time.perf_counter()
        assert messaging.code(sender.send(messaging.message(topic))) == "OK"
        took_ms.append((time.perf_counter() - began) * 1e3)
    return [round(one, 1) for one in (statistics.median(took_ms), sorted(took_ms)[SENDS * 9 // 10])]


@pytest.mark.parametrize("client", ["java", "python", "go"], indirect=True)
def test_clients_follow_a_lost_master(client, tmp_path):
    """Go's has more time for a query than for the dial before it: `ROW_ROUTE_S`."""
    with pair(tmp_path) as two:
        prepare(two["a"].root)

        def lose() -> None:
            require_settled(two["a"].root)
            two.kill("a")
            two.promote("b")

        survivor = grpc_gateway(two["b"])
        assert play(client, survivor, "reconnect", route_s=20, kill=lose) == "reconnect\tok\n"


def require_settled(root: Path) -> None:
    """The push consumer has acknowledged what it was given. Python's would try that at the lost
    address for eight minutes, and does not end before."""
    with connect(root) as client:
        until(
            lambda: sum(one.offset for one in client.groups("reaches-too")) == 1,
            "the push consumer's message is acknowledged",
        )


def test_clients_follow_an_address_that_follows_the_master(client, tmp_path):
    """A virtual one, or a service's of Kubernetes: routes name it, and not where a gateway is."""
    with Wire(NOWHERE) as door, pair(tmp_path, f"gateway.grpc_advertised={door.address}") as two:
        prepare(two["a"].root)
        door.lead_to(grpc_gateway(two["a"]))

        def lose() -> None:
            require_settled(two["a"].root)
            door.lead_to(NOWHERE)
            two.kill("a")
            two.promote("b")
            door.lead_to(grpc_gateway(two["b"]))

        assert play(client, door.address, "reconnect", kill=lose) == "reconnect\tok\n"


def test_clients_with_tls_and_in_clear_reach_one_port(all_clients, tmp_path):
    """By their defaults: Java and Go have TLS with any certificate, Python and Node.js have not."""
    with served(tmp_path, *made(tmp_path / "pki").settings()) as (broker, endpoint):
        prepare(broker.root)
        for client in all_clients:
            assert play(client, endpoint, "normal-fields", tls=client in ("java", "go")) == (
                "normal-fields\tok\n"
            )


def test_clients_that_name_several_addresses_use_one_that_answers(all_clients, tmp_path):
    """h2corn refuses Python's, which sends all of them as the authority. Node.js's looks all of
    them up as one name."""
    settings = made(tmp_path / "pki").settings("gateway.grpc_server=grpcio")
    with served(tmp_path, *settings) as (broker, endpoint):
        prepare(broker.root)
        for client in ("java", "python", "go"):
            tls = client != "python"
            assert play(client, f"{NOWHERE};{endpoint}", "normal-fields", tls=tls) == (
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


def play(
    client: str,
    *arguments: str,
    options: str = "",
    tls: bool = False,
    route_s: int = 3,
    kill: Callable[[], None] = pytest.fail,
) -> str:
    """What the program prints: a line for each row. `kill` is called when it asks for that, and one
    that asks to vanish is killed itself."""
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
        "ROW_ROUTE_S": str(route_s),
        "rocketmq.client.enableSsl": str(tls).lower(),  # Go's own name
        "rocketmq.client.logRoot": str(TARGET / "go"),
    }
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [*command, *arguments],
            env=os.environ | of_client,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
        ) as process,
        ended_after(process, DEADLINE_S),
    ):
        assert process.stdin is not None and process.stdout is not None
        said, expected = "", (0, 1)
        for line in process.stdout:
            if line == "kill\n":
                kill()
                process.stdin.write("back\n")
                process.stdin.flush()
            elif line == "vanish\n":
                process.kill()
                expected = (-signal.SIGKILL,)
            else:
                said += line
        code = process.wait()
        errors.seek(0)
        assert code in expected, errors.read()[-4_000:]
    return said


@contextmanager
def ended_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()


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
    source = {file.name: file.read_text() for file in (PROGRAMS / "go").glob("*.go")}
    built = {file.name: file.read_text() for file in place.glob("*.go")}
    if (place / "rows").exists() and built == source:
        return []
    for name in built:
        (place / name).unlink()
    for name, text in source.items():
        (place / name).write_text(text)
    (place / "go.mod").write_text("module rows\n\ngo 1.21\n")
    return [
        ["go", "get", GO],
        ["go", "mod", "tidy"],
        ["go", "build", "-o", "rows", "."],
    ]


STEPS = {"java": java_steps, "python": python_steps, "node": node_steps, "go": go_steps}
"""The commands that install each client into a directory, at most three."""
