"""Sends of RocketMQ 5's clients that go to the log as rows: which they are, what they store, and
what they are answered."""

import asyncio
import gc
import random
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.messaging.messages import message_type, queue_of_group, to_store
from stratamq_gateway.messaging.rows import MessageRow, MessageRowSends, row_of, sent
from stratamq_gateway.messaging.sending import SendMessage
from stratamq_gateway.messaging.statuses import RefusedError, status
from stratamq_gateway.messaging.topics import QueueCounts

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic
from stratamq.client.batching import Batching, Outbox
from stratamq.client.numbering import Numbering
from stratamq.client.outgoing import encode_message_properties
from stratamq.client.units import Batch, BatchOutcome
from stratamq.errors import BusyError, StrataError, UnavailableError
from stratamq.formats import sysflag
from stratamq.formats.message_status import SendStatus
from tests.gateway.messaging import message

CLUSTER = "cluster"
BORN_MS = 1_795_000_000_123

TEXTS = st.text(max_size=8) | st.sampled_from(["", " ", "a b", "a|b", "KEYS", "\x01", "\x02", "é"])


def decoded(given_message: pb.Message) -> MessageRow:
    """By the way that makes an object. RefusedError."""
    made = to_store(given_message, CLUSTER)
    properties = encode_message_properties(
        made.tag, made.keys, made.unique_key or "", made.properties
    )
    fields = (made.flag, made.sys_flag, made.born_timestamp_ms, made.reconsume_times)
    key = made.unique_key or ""
    return MessageRow(made.topic, fields, (made.body, properties), key, message_type(given_message))


@settings(max_examples=500, deadline=None)
@given(
    tag=st.none() | TEXTS,
    keys=st.lists(TEXTS, max_size=3),
    properties=st.dictionaries(TEXTS, TEXTS, max_size=3),
    born_host=TEXTS,
    message_id=TEXTS,
    trace_context=st.none() | TEXTS,
    message_group=st.none() | TEXTS | st.just("g" * 64),
    priority=st.none() | st.integers(-1, 9),
    born_ms=st.integers(-1, 1) | st.just(BORN_MS),
)
def test_a_row_is_what_its_message_would_store(properties, born_ms, **system):
    one = message(
        "orders",
        properties=properties,
        **{name: value for name, value in system.items() if value is not None},
    )
    one.system_properties.born_timestamp.FromMilliseconds(born_ms)
    row = row_of(one, CLUSTER)
    if row is not None:
        assert row == decoded(one)


def test_what_clients_send_is_a_row():
    one = message(
        "orders",
        b"body",
        {"colour": "red", "größe": "8"},
        tag="paid",
        keys=["order-1", "order-2"],
        born_host="host",
        trace_context="00-1-2-01",
        body_encoding=pb.GZIP,
    )
    row = row_of(one, CLUSTER)
    assert row == decoded(one)
    assert row.fields == (0, sysflag.COMPRESSED, BORN_MS, 0)
    assert [one.topic for one in row.messages] == ["orders"]


@pytest.mark.parametrize(
    ("topic", "properties", "system"),
    [
        ("orders", {}, {"message_group": " "}),
        ("orders", {}, {"message_group": "g" * 64}),
        ("orders", {}, {"priority": -1}),
        ("orders", {}, {"lite_topic": "l"}),
        ("orders", {}, {"message_type": pb.TRANSACTION}),
        ("orders", {}, {"orphaned_transaction_recovery_duration": timedelta(hours=2)}),
        ("orders", {}, {"tag": ""}),
        ("orders", {}, {"tag": "a|b"}),
        ("orders", {}, {"keys": ["a b"]}),
        ("orders", {}, {"keys": ["a", ""]}),
        ("orders", {}, {"message_id": " "}),
        ("orders", {"TAGS": "paid"}, {}),
        ("orders", {"a": "b\n"}, {}),
        ("orders", {"a\x01b": "c"}, {}),
        ("orders", {f"n{number}": "" for number in range(129)}, {}),
        ("orders", {"a": "x" * (16 << 10)}, {}),
        ("or ders", {}, {}),
        ("rmq_sys_wheel_timer", {}, {}),
    ],
)
def test_what_needs_more_or_is_refused_is_decoded(topic, properties, system):
    assert row_of(message(topic, properties=properties, **system), CLUSTER) is None


def test_other_bodies_times_and_namespaces_are_decoded():
    for body in (b"", bytes((4 << 20) + 1)):
        assert row_of(message("orders", body), CLUSTER) is None
    delayed, unborn, elsewhere = message("orders"), message("orders"), message("orders")
    delayed.system_properties.delivery_timestamp.FromMilliseconds(BORN_MS)
    unborn.system_properties.ClearField("born_timestamp")
    elsewhere.topic.resource_namespace = "n"
    for one in (delayed, unborn, elsewhere):
        assert row_of(one, CLUSTER) is None


def test_a_row_without_its_checksum_is_refused():
    one = message("orders")
    one.system_properties.body_digest.type = pb.MD5
    one.system_properties.body_digest.checksum = "0" * 32
    with pytest.raises(RefusedError) as refused:
        row_of(one, CLUSTER)
    assert refused.value.code == pb.MESSAGE_CORRUPTED


@pytest.mark.parametrize(("message_id", "offset"), [("01AB", 7), ("x" * 300, 1 << 62), ("é", 0)])
def test_the_answer_is_the_one_of_a_message_that_is_stored(message_id, offset):
    entry = pb.SendResultEntry(
        status=status(pb.OK), message_id=message_id, transaction_id=message_id, offset=offset
    )
    expected = pb.SendMessageResponse(status=status(pb.OK), entries=[entry])
    assert pb.SendMessageResponse.FromString(sent(message_id, offset)) == expected


class Stream:
    """One whose batches are settled by the test."""

    takes_rows = True

    def __init__(self) -> None:
        batching = Batching(1 << 20, 100, 1, 0, single_sends=True)
        self.outbox = Outbox(batching, Numbering(random.Random(1)))
        self.settlings: list[tuple[Batch, asyncio.Event]] = []
        self.failure: StrataError | None = None

    def add_row(self, topic, queue_id, fields, row):
        if not self.takes_rows:
            return None
        return self.outbox.add(topic, queue_id, fields, row, 100, 0)

    async def settled(self, batch: Batch) -> None:
        settling = asyncio.Event()
        self.settlings.append((batch, settling))
        await settling.wait()
        if self.failure is not None:
            raise self.failure.fresh_copy()

    def settle(self, outcome: BatchOutcome | StrataError) -> None:
        self.outbox.next_batch(0)
        ((batch, settling),) = self.settlings
        if isinstance(outcome, StrataError):
            self.failure = outcome
        else:
            batch.lengths = [100] * batch.count
            batch.settle(outcome)
        settling.set()


ROW = row_of(message("orders"), CLUSTER)
STORED = BatchOutcome(SendStatus.PUT_OK, 1_000, (5,), 1, queue_ids=(2,))


async def sending(sends: MessageRowSends, stream: Stream, count: int) -> list[asyncio.Task]:
    tasks = [asyncio.ensure_future(sends.send(stream, ROW, None)) for _ in range(count)]
    while len(stream.settlings) < 1:
        await asyncio.sleep(0)
    return tasks


async def test_the_sends_of_a_batch_are_answered_together_but_for_those_of_clients_that_left():
    stream = Stream()
    tasks = await sending(MessageRowSends(), stream, 3)
    tasks[1].cancel()
    stream.settle(STORED)
    first, left, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    assert (first, last) == (5, 7)


not_stored = pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (UnavailableError("no answer", perhaps_stored=True), UnavailableError),
        (BatchOutcome(SendStatus.UNKNOWN_ERROR, error=BusyError("full")), BusyError),
    ],
)


@not_stored
async def test_a_batch_that_is_not_stored_does_not_wait_for_the_collector(outcome, error):
    async def failed() -> None:
        stream = Stream()
        tasks = await sending(MessageRowSends(), stream, 2)
        if isinstance(outcome, BatchOutcome):
            stream.settle(replace(outcome, error=outcome.error.fresh_copy()))
        else:
            stream.settle(outcome)
        await asyncio.wait(tasks)
        assert all(isinstance(one.exception(), error) for one in tasks)

    gc.collect()
    gc.disable()
    try:
        await failed()
        await asyncio.sleep(0)  # the callbacks of the tasks are over
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [one for one in gc.garbage if isinstance(one, Batch)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@not_stored
async def test_every_send_of_a_batch_that_is_not_stored_is_told_so(outcome, error):
    stream = Stream()
    tasks = await sending(MessageRowSends(), stream, 2)
    stream.settle(outcome)
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(found, error)


async def test_each_message_group_and_each_priority_has_its_queue_as_a_row():
    stream, asked = Stream(), []

    async def count_of(topic: str) -> int:
        asked.append(topic)
        return 4

    queues = SimpleNamespace(of=count_of)
    session = SimpleNamespace(client=SimpleNamespace(rows=stream), queues=queues)
    send = SendMessage(BrokerName("cluster", "broker", "127.0.0.1:1"))
    given = [message("orders"), message("orders", message_group="g"), message("orders", priority=2)]
    requests = [pb.SendMessageRequest(messages=[one]) for one in given]
    answers = [
        asyncio.ensure_future(send.answer(session, one, send.asked(one))) for one in requests
    ]
    while stream.outbox.pending_messages < len(given) or not stream.settlings:
        await asyncio.sleep(0)
    batch = stream.outbox.next_batch(0)
    assert [queue for _, queue in batch.runs] == [-1, queue_of_group("g", 4), 2]
    assert asked == ["orders", "orders"]
    batch.lengths = [100] * 3
    batch.settle(BatchOutcome(SendStatus.PUT_OK, 0, (5, 6, 7), 1))
    stream.settlings[0][1].set()
    found = [pb.SendMessageResponse.FromString(one) for one in await asyncio.gather(*answers)]
    assert [one.entries[0].offset for one in found] == [5, 6, 7]


class Topics:
    """What a client of the broker knows; it answers when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.count = 4
        self.go = asyncio.Event()

    async def topics(self, name: str) -> list[Topic]:
        self.asked += 1
        await self.go.wait()
        return [Topic(name, self.count, self.count)] if self.count else []


async def test_callers_that_ask_for_a_topics_queues_together_go_on_in_their_order():
    topics, order = Topics(), []
    queues = QueueCounts(topics)

    async def ask(number: int) -> None:
        assert await queues.of("orders") == 4
        order.append(number)

    asking = [asyncio.ensure_future(ask(number)) for number in range(3)]
    await asyncio.sleep(0)
    topics.go.set()
    while not order:
        await asyncio.sleep(0)
    await asyncio.gather(*asking, ask(3))
    assert (order, topics.asked) == ([0, 1, 2, 3], 1)


async def test_the_queues_of_a_topic_are_asked_for_again_after_a_while_or_a_refusal(monkeypatch):
    topics = Topics()
    topics.go.set()
    queues = QueueCounts(topics)
    assert await queues.of("orders") == 4
    topics.count = 8
    assert await queues.of("orders") == 4
    queues.forget("orders")
    assert await queues.of("orders") == 8
    topics.count = 0
    queues.forget("orders")
    for _ in range(2):
        with pytest.raises(RefusedError):
            await queues.of("orders")
    topics.count = 2
    monkeypatch.setattr("stratamq_gateway.messaging.topics.FRESH_S", 0.0)
    assert await queues.of("orders") == 2
    topics.count = 3
    assert await queues.of("orders") == 3


async def test_a_stream_that_takes_no_rows_is_sent_none():
    stream = Stream()
    stream.takes_rows = False
    assert await MessageRowSends().send(stream, ROW, None) is None
    assert stream.outbox.idle
