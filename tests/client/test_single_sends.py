"""What `send` stores goes over one stream, with what others of the client send at the moment; each
caller gets its own result, or its own error. With both clients."""

import asyncio
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.client import (
    Credentials,
    Message,
    MessageType,
    SendStatus,
    Topic,
    connect,
    connect_async,
)
from stratamq.client.received import split_frames
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.sysflag import TAKEN_FLAGS
from stratamq.rpc import discovery
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from tests.client.on_loop import original
from tests.support import freezing
from tests.support.brokers import COMMITLOG, Broker
from tests.support.mounts import mounted
from tests.support.waiting import until

GOOD = 63
READ = 4
BAD = {
    "forbidden": (Message("secret", b"x"), NotPermittedError),
    "missing": (Message("nowhere", b"x"), NotFoundError),
    "deleted": (Message("deleted", b"x"), NotFoundError),
    "read-only": (Message("closed", b"x"), NotWritableError),
    "no such queue": (Message("t", b"x", queue_id=99), InvalidRequestError),
    "another type": (Message("ordered", b"x"), InvalidRequestError),
    "no topic name": (Message("not/a/name", b"x"), InvalidRequestError),
}


@pytest.fixture
def together(kind, run):
    """Send messages at the same moment, by a thread or a task each: results, or what was raised."""

    def outcomes(client, messages):
        if kind == "asyncio":

            async def all_of_them():
                sends = [original(client).send_message(one) for one in messages]
                return await asyncio.gather(*sends, return_exceptions=True)

            return run(all_of_them())
        barrier = threading.Barrier(len(messages))

        def send(message):
            barrier.wait()
            try:
                return client.send_message(message)
            except StrataError as error:
                return error

        with ThreadPoolExecutor(len(messages)) as pool:
            return list(pool.map(send, messages))

    return outcomes


@pytest.fixture(scope="module")
def guarded(kind, tmp_path_factory):
    """A log in which `alice` may produce to all topics but one, and makes none by sending."""
    directory = tmp_path_factory.mktemp("guarded")
    permissions = Permissions()
    token = permissions.add_token("alice", "")
    topics = {message.topic for message, _ in BAD.values()} - {"secret"}
    permissions.rules = [grant_of("alice", "produce", f"topic:{topic}") for topic in topics]
    (directory / "access.json").write_bytes(dump(permissions))
    settings = (
        f"access.file={directory}/access.json",
        "commitlog.followers=",
        "commitlog.auto_create_topics=false",
    )
    with Broker(directory / "store", directory / "logs", settings) as broker:
        broker.start([COMMITLOG])
        with connect(broker.root) as client:
            for topic in ("t", "secret", "deleted", "closed"):
                client.admin.create_topic(Topic(topic))
            client.admin.create_topic(Topic("ordered", message_type=MessageType.FIFO))
            client.admin.delete_topic("deleted")
            client.admin.alter_topic("closed", permission=READ)
        yield discovery.read(broker.root, COMMITLOG).address, Credentials(token=token)


@pytest.mark.parametrize("bad", BAD)
def test_a_message_that_is_refused_takes_no_other_with_it(guarded, opened, together, bad):
    address, credentials = guarded
    message, expected = BAD[bad]
    with opened(address, credentials=credentials) as client:
        client.send("t", b"opens the stream")
        stream = original(client)._brokers.whole.sending.shared._stream
        for place in (0, GOOD // 2, GOOD):
            messages = [Message("t", b"%d" % number) for number in range(GOOD)]
            messages.insert(place, message)
            results = together(client, messages)
            refused = results.pop(place)
            assert type(refused) is expected, refused
            assert [one.status for one in results] == [SendStatus.PUT_OK] * GOOD
            assert len({one.physical_offset for one in results}) == GOOD
        assert stream.opened and stream.idle()


@pytest.mark.parametrize("bad", BAD)
def test_a_message_of_a_producer_that_is_refused_takes_no_other_with_it(guarded, opened, bad):
    address, credentials = guarded
    message, expected = BAD[bad]
    messages = [Message("t", b"%d" % number, queue_id=number % 2) for number in range(GOOD)]
    with opened(address, credentials=credentials) as client, client.producer() as producer:
        deliveries = [producer.send_message(one) for one in [*messages, message, *messages]]
        with pytest.raises(expected):
            deliveries.pop(GOOD).result()
        producer.flush()
        results = [one.result() for one in deliveries]
    assert [one.status for one in results] == [SendStatus.PUT_OK] * 2 * GOOD
    for queue_id in (0, 1):
        offsets = [one.queue_offset for one in results if one.queue_id == queue_id]
        assert offsets == [*range(offsets[0], offsets[0] + len(offsets))]


@pytest.fixture
def client(own_log, opened):
    with opened(own_log.root, retry_timeout_s=60) as client:
        yield client


def outbox_of(client):
    return original(client)._brokers.whole.sending.shared._outbox


def test_what_names_no_queue_goes_to_those_of_its_topic_in_turn(client):
    client.admin.create_topic(Topic("t", write_queue_count=4))
    results = [client.send("t", b"%d" % number) for number in range(8)]
    assert [one.queue_id for one in results] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [one.queue_offset for one in results] == [0, 0, 0, 0, 1, 1, 1, 1]
    for number, result in enumerate(results):
        message = client.message_by_id(result.message_id)
        assert (message.body, message.queue_id) == (b"%d" % number, result.queue_id)
    client.admin.alter_topic("t", write_queue_count=1)
    assert {client.send("t", b"x").queue_id for _ in range(3)} == {0}


def test_those_who_send_while_the_log_is_busy_share_its_batches(client, own_log, together):
    client.send("t", b"first")
    freezing.freeze(own_log.pid(COMMITLOG))
    waits = threading.Thread(
        target=until,
        args=(lambda: outbox_of(client).pending_bytes > 64 * 100, "all wait"),
    )
    waits.start()
    thaw = threading.Thread(target=lambda: (waits.join(), freezing.thaw(own_log.pid(COMMITLOG))))
    thaw.start()
    results = together(client, [Message("t", bytes(100)) for _ in range(64)])
    thaw.join()
    assert [one.status for one in results] == [SendStatus.PUT_OK] * 64
    stretches = Counter(one.store_timestamp_ms for one in results)
    assert max(stretches.values()) > 16  # as many batches as may be in flight hold all of them


WAYS = {
    "send": lambda client, body: client.send("t", body),
    "send_all": lambda client, body: client.send_all([Message("t", body)])[0].check(),
}


@pytest.fixture
def nearly_full(tmp_path):
    """A log on a volume of its own, and a file of a few megabytes that makes it full."""
    volume = tmp_path / "volume"
    settings = ("commitlog.followers=", "commitlog.segment_bytes=1048576",
                "commitlog.disk_refuse_ratio=0.5", "commitlog.disk_resume_ratio=0.4")  # fmt: skip
    with (
        mounted("-t", "tmpfs", "-o", "size=64m", "none", at=volume),
        Broker(volume / "store", tmp_path / "logs", settings) as broker,
    ):
        yield broker.start([COMMITLOG]), volume / "filler"


def test_each_message_whose_answer_was_lost_is_stored_once(client, own_log, together):
    client.send("t", b"first")
    pid = own_log.pid(COMMITLOG)
    freezing.freeze(pid)

    def restart():
        until(lambda: outbox_of(client).pending_bytes > 40 * 100, "all wait")
        own_log.kill(COMMITLOG)
        own_log.start([COMMITLOG])

    again = threading.Thread(target=restart)
    again.start()
    bodies = [b"%0100d" % number for number in range(40)]
    results = together(client, [Message("t", body) for body in bodies])
    again.join()
    assert [one.status for one in results] == [SendStatus.PUT_OK] * 40
    end = client.log_state().appended_offset
    found = [one for _, frames in client.log_frames(0, end) for one in split_frames(frames)]
    assert Counter(one.body for one in found) == Counter([b"first", *bodies])
    places = {one.body: one.physical_offset for one in found}
    assert [places[body] for body in bodies] == [one.physical_offset for one in results]


def test_a_log_that_stops_is_waited_for_until_it_has_started_again(tmp_path, opened, together):
    # The dispatcher does not run: the log waits for it.
    settings = ("commitlog.followers=dispatcher", "commitlog.segment_bytes=1048576")
    with (
        Broker(tmp_path / "store", tmp_path / "logs", settings) as broker,
        opened(broker.start([COMMITLOG]).root, retry_timeout_s=60) as client,
    ):
        client.send("t", b"first")
        os.kill(broker.pid(COMMITLOG), signal.SIGTERM)
        until(lambda: not client.log_state().writable, "it refuses messages")
        ended = threading.Event()
        shared = original(client)._brokers.whole.sending.shared

        def restart():
            until(lambda: shared._stream._refusals or ended.is_set(), "a message was refused")
            broker.kill(COMMITLOG)
            broker.start([COMMITLOG])

        again = threading.Thread(target=restart)
        again.start()
        results = together(client, [Message("t", b"x") for _ in range(3)])
        ended.set()
        again.join()
        assert [one.status for one in results] == [SendStatus.PUT_OK] * 3


def test_a_log_that_does_not_answer_fails_each_as_perhaps_stored_and_is_used_again(
    own_log, opened, together
):
    with opened(own_log.root, timeout_s=0.5) as client:
        until(lambda: stored(client), "it was used before")
        pid = own_log.pid(COMMITLOG)
        freezing.freeze(pid)
        try:
            results = together(client, [Message("t", b"x") for _ in range(3)])
        finally:
            freezing.thaw(pid)
        for error in results:
            assert isinstance(error, UnavailableError) and error.fields["perhaps_stored"]
            assert "no answer within" in str(error)  # and not: the connection was given up
        until(lambda: stored(client), "the log is used again")


def stored(client) -> bool:
    try:
        return client.send("t", b"again").stored
    except UnavailableError:
        return False


def test_a_closed_client_sends_nothing(own_log, opened, workers):
    client = opened(own_log.root)
    client.send("t", b"x")
    assert workers("stratamq-producer")
    client.close()
    assert not workers("stratamq-producer")
    with pytest.raises(InvalidRequestError, match="closed"):
        client.send("t", b"x")


def test_a_sender_that_is_cancelled_disturbs_no_other(own_log, run, kind):
    if kind == "synchronous":
        pytest.skip("threads are not cancelled")

    async def scenario():
        async with connect_async(own_log.root) as client:
            await client.send("t", b"first")
            sends = [asyncio.create_task(client.send("t", b"%d" % one)) for one in range(20)]
            await asyncio.sleep(0)
            for task in sends[::2]:
                task.cancel()
            return await asyncio.gather(*sends, return_exceptions=True)

    results = run(scenario())
    assert all(isinstance(one, asyncio.CancelledError) for one in results[::2])
    assert [one.status for one in results[1::2]] == [SendStatus.PUT_OK] * 10


@pytest.mark.parametrize(
    "how",
    [{"require_replicas": True}, {"wait_store_ok": False}, {"body": bytes(5 << 20)}],
    ids=["replicas", "no wait", "large"],
)
def test_what_the_stream_does_not_carry_goes_by_a_call_of_its_own(own_log, opened, how):
    with opened(own_log.root) as client:
        try:
            client.send("t", how.get("body", b"x"), **{k: how[k] for k in how if k != "body"})
        except (NotWritableError, InvalidRequestError):
            assert "wait_store_ok" not in how  # this log requires no slaves, takes no 5 MiB
        assert not outbox_of(client).pending_bytes
        assert outbox_of(client).numbering.take(1) == 0


def test_bits_that_only_the_log_may_set_are_left_out_as_by_a_call(client):
    for result in (
        client.send_message(Message("t", b"x", sys_flag=0xFFFF)),
        client.send_all([Message("t", b"x", sys_flag=0xFFFF)])[0],
    ):
        assert client.message_at(result.physical_offset).sys_flag == TAKEN_FLAGS
