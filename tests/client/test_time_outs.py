"""No call outlives its time-out: of a broker that stands still, of one whose event loops do while
its connections live, and of one that takes connections and never answers."""

import contextlib
import inspect
import socket
import threading

import pytest

from stratamq.client import HalfMessage, Message, Topic
from stratamq.errors import StrataError, UnavailableError
from tests.client.on_loop import original
from tests.support import freezing
from tests.support.brokers import COMMITLOG, DISPATCHER, ROOMS, Broker, broker_fixture

TIMEOUT_S = 0.5
ENDS_S = 100.0
"""Far beyond every time-out here, for a machine that is busy: what outlives it waits for ever."""
SETTINGS = ("commitlog.segment_bytes=1048576", "index.index_slots=1000", "index.index_items=4000")

CALLS = {
    "send": lambda client: client.send("t", b"x"),
    "send_message": lambda client: client.send_message(Message("t", b"x")),
    "send_all": lambda client: client.send_all([Message("t", b"x")]),
    "pull": lambda client: client.pull("t", 0, 0),
    "message_at": lambda client: client.message_at(0),
    "message_by_id": lambda client: client.message_by_id("7F00000100002A9F0000000000000000"),
    "query_key": lambda client: client.query_key("t", "k"),
    "query_unique_key": lambda client: client.query_unique_key("t", "k"),
    "offset_at_time": lambda client: client.offset_at_time("t", 0, 0),
    "commit_offsets": lambda client: client.commit_offsets("g", {("t", 0): 1}),
    "committed_offsets": lambda client: client.committed_offsets("g"),
    "topics_of_group": lambda client: client.topics_of_group("g"),
    "groups": lambda client: client.groups(),
    "groups_page": lambda client: client.groups_page(),
    "group_members": lambda client: client.group_members("g"),
    "topics": lambda client: client.topics(),
    "topics_page": lambda client: client.topics_page(),
    "groups_of_topic": lambda client: client.groups_of_topic("t"),
    "queues": lambda client: client.queues(),
    "units": lambda client: client.units("t", 0, 0),
    "log_state": lambda client: client.log_state(),
    "shards": lambda client: client.shards(),
    "log_frames": lambda client: list(client.log_frames(0)),
    "log_heads": lambda client: list(client.log_heads(0)),
    "queue_frames": lambda client: list(client.queue_frames([("t", 0, 0, 1)])),
    "consume": lambda client: list(client.consume("t", retry_timeout_s=TIMEOUT_S)),
    "between": lambda client: list(client.between("t", 0, 1 << 42)),
    "producer": lambda client: _one_message(client),
    "subscribe": lambda client: client.subscribe("t", "g").receive(1),
    "held_messages": lambda client: client.held_messages("g"),
    "group_settings": lambda client: client.group_settings("g"),
    "stop_sharing": lambda client: client.stop_sharing("g"),
    "end_transaction": lambda client: client.end_transaction(
        "g", [HalfMessage("t", 0, "key")], commit=True
    ),
    "transaction": lambda client: client.transaction("g").send("t", b"x"),
    "admin": lambda client: client.admin.create_topic(Topic("made")),
}
WITHOUT_SERVICE = {"services", "members", "close", "transaction_checks"}
"""`transaction_checks` waits without end, as a reader that follows does. `services` reads where
they are in the directory, `members` says who is silent."""


def _one_message(client):
    with client.producer(delivery_timeout_s=TIMEOUT_S, timeout_s=TIMEOUT_S) as producer:
        return producer.send("t", b"x", queue_id=0).result()


def outcome(call) -> BaseException | None:
    """What it raises; a failure when it has not ended long after its time-out."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            ended.append(None)
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            ended.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    caller.join(ENDS_S)
    assert ended, "it has not ended"
    return ended[0]


broker = broker_fixture(*SETTINGS, of_each_kind=True)


@contextlib.contextmanager
def frozen(pid: int):
    freezing.freeze(pid)
    try:
        yield
    finally:
        freezing.thaw(pid)


@pytest.fixture(scope="module", params=[frozen, freezing.frozen_loop], ids=["process", "loop"])
def still(request, broker, opened):
    """A client that has reached every service, all of which then stand still."""
    with opened(broker.root, retry_timeout_s=60) as filling:
        filling.send("t", b"x", queue_id=0, keys=["k"])
        assert list(filling.consume("t"))
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(opened(broker.root, timeout_s=TIMEOUT_S))
        for pid in {broker.pid(room) for room in ROOMS}:
            stack.enter_context(request.param(pid))
        yield client


def test_every_public_call_is_among_these(still):
    names = {
        name
        for name, _ in inspect.getmembers(type(original(still)), inspect.isfunction)
        if not name.startswith("_")
    }
    assert names - WITHOUT_SERVICE == set(CALLS) - {"admin"}


@pytest.mark.parametrize("name", [one for one in CALLS if one != "shards"])
def test_a_call_to_services_that_stand_still_ends(still, name):
    assert isinstance(outcome(lambda: CALLS[name](still)), UnavailableError)


def test_frames_end_by_the_time_out_and_not_by_a_connection_that_is_given_up(own_log, opened):
    with opened(own_log.root, timeout_s=TIMEOUT_S, retry_timeout_s=60) as client:
        client.log_state()  # it is connected
        freezing.freeze(own_log.pid(COMMITLOG))
        try:
            with pytest.raises(UnavailableError, match=f"no answer within {TIMEOUT_S} s"):
                list(client.log_frames(0))
        finally:
            freezing.thaw(own_log.pid(COMMITLOG))


@pytest.fixture
def deaf():
    """An address at which connections are taken, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("several", [False, True], ids=["one address", "two"])
def test_a_call_to_who_never_answers_ends(deaf, opened, name, several):
    target = f"{deaf},localhost:{deaf.rpartition(':')[2]}" if several else deaf
    with opened(target, timeout_s=TIMEOUT_S) as client:
        assert isinstance(outcome(lambda: CALLS[name](client)), StrataError)


def test_a_reader_that_has_begun_ends_when_its_dispatcher_stands_still(tmp_path, kind, opened):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as own:
        own.start([COMMITLOG, DISPATCHER])
        with opened(own.root, retry_timeout_s=60) as filling:
            filling.send("t", b"x", queue_id=0)
            assert list(filling.consume("t"))
        with (
            opened(own.root, timeout_s=TIMEOUT_S) as client,
            client.consume("t", refresh_s=TIMEOUT_S, retry_timeout_s=TIMEOUT_S) as reader,
            freezing.frozen_loop(own.pid(DISPATCHER)),
        ):
            assert isinstance(outcome(lambda: list(reader)), UnavailableError)
