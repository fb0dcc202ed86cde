"""Appends of a service of the broker name the generation in which they were decided: the log, not
the service, refuses those that come late."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
from stratamq_commitlog.messages import FrameBatch, FrameRun
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.use_cases.append_stream import Fence
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.write.batch_check import BadFrame, FrameRules
from stratamq_commitlog.write.few_frames import few_frames
from stratamq_commitlog.write.frame_fields import check_batches

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError, UnavailableError
from stratamq.formats.batch_frames import BatchEncoder, FrameShape
from stratamq.formats.hosts import encode_host
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq.formats.source_item import MessageSource, encode_source, source_of
from stratamq.formats.sysflag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from stratamq.formats.topics import DRAIN_TOPIC, OWN_PREFIX, SCHEDULE_TOPIC
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.permissions import RULES
from stratamq.rpc.request_ids import Request
from stratamq.service.caller import Caller
from stratamq.service.entrance import Entrance
from tests.commitlog.served import servicer_of
from tests.commitlog.test_role_change import MASTER, TO_SLAVE, ask
from tests.support.logs import BORN, STORE_HOST, Store, batch, message

OWN = f"{OWN_PREFIX}TEST"
COPY = encode_source(MessageSource(7, 4096))


def started(**settings) -> Store:
    store = Store(**settings)
    store.start()
    return store


def fence(store: Store) -> Fence:
    return Fence(store.log.states, store.log.generation)


def own(held: Fence, topic: str = OWN, bodies=(b"one",)) -> FrameBatch:
    return replace(batch(bodies, topic), fence=held.obstacle)


def ending_in(properties: bytes, count: int, shape: FrameShape | None = None) -> FrameBatch:
    encoder = BatchEncoder(shape or FrameShape(encode_host(BORN)))
    encoder.add("orders", [(b"body", properties)] * count)
    _, frames = encoder.finish()
    return FrameBatch([FrameRun("orders", 0, count)], np.array(encoder.lengths, np.uint32), frames)


def test_what_waits_while_the_log_is_demoted_is_not_stored():
    store = started()
    end = store.end()
    store.send_batch(own(fence(store)))
    assert ask(store, TO_SLAVE) is None
    (result,) = store.answers.batches
    assert not result.status.stored and result.error is not None
    assert store.end() == end


def test_what_was_decided_before_a_demotion_is_refused_after_the_next_promotion():
    """The connection was open all the time, and a check before sending saw a master."""
    store = started()
    held = fence(store)
    assert store.put_batch(own(held)).status is SendStatus.PUT_OK
    assert ask(store, TO_SLAVE) is None
    assert ask(store, MASTER) is None
    end = store.end()
    result = store.put_batch(own(held))
    assert isinstance(result.error, NotWritableError) and result.error.reason == "fenced"
    assert store.end() == end
    assert store.put_batch(own(fence(store))).status is SendStatus.PUT_OK


def test_the_sequencer_looks_at_the_fence_when_it_gives_the_batch_its_place():
    """The fence ends when the batch is taken already: it waits for the pass."""
    store = started()
    held = fence(store)
    store.send_batch(own(held))
    held.end("another stream of the writer has opened")
    end = store.end()
    store.settle()
    assert isinstance(store.answers.batches[0].error, NotWritableError)
    assert store.end() == end


async def test_what_waits_of_a_writers_older_stream_is_not_stored_once_a_newer_has_opened():
    """The log has taken the batch, and the pass that would store it has not begun."""
    store = started()
    servicer = servicer_of(ServedLog(store.log, opening=""))
    rule = RULES["AppendStream"]
    entrance = Entrance(
        None, None, None, "AppendStream", rule, takes_stream=True, gives_stream=True
    )
    opening = pb.AppendOpen(writer="test", generation=store.log.generation)
    head = pb.AppendStreamRequest(sequence=1, runs=[pb.AppendRun(topic=OWN, count=1)])
    late = own(fence(store))

    async def requests(*batches: bytes) -> AsyncIterator[bytes]:
        yield APPEND_STREAM_REQUEST.encode(pb.AppendStreamRequest(open=opening), b"", b"")
        for one in batches:
            yield one
        await asyncio.Event().wait()

    with entrance.enter(Caller, Request()) as call:
        packed = late.lengths.astype(">u4").tobytes()
        sent = requests(APPEND_STREAM_REQUEST.encode(head, packed, late.frames))
        older = servicer.AppendStream(sent, call)
        await anext(older)
        answer = asyncio.ensure_future(anext(older))
        while not store.log.appender.waiting:
            await asyncio.sleep(0)
        newer = servicer.AppendStream(requests(), call)
        await anext(newer)
        store.settle()
        (result,) = pb.AppendStreamResponse.FromString(await answer).results
        assert (result.error_name, "another append stream" in result.error) == (
            "NOT_WRITABLE", True,
        )  # fmt: skip
        assert store.frames() == []
        with pytest.raises(UnavailableError, match="another append stream"):
            await anext(older)
        await newer.aclose()


def test_batches_of_one_fence_share_a_pass_and_keep_their_order():
    store = started()
    held = fence(store)
    for body in (b"a", b"b"):
        store.send_batch(own(held, bodies=[body]))
    store.send_batch(batch([b"c"], OWN.replace("STRATAMQ", "OTHER")))
    passes = store.log.appender.counters.passes
    store.step()
    assert store.log.appender.counters.passes == passes + 1
    store.settle()
    assert [frame.body for frame in store.frames()] == [b"a", b"b", b"c"]


def test_a_batch_behind_a_bad_one_of_its_stream_is_not_stored():
    """Both are in one pass. The second was decided on top of the first."""
    store = started()
    held = fence(store)
    bad, good = own(held, bodies=[b"bad"]), own(held, bodies=[b"good"])
    broken = bytearray(bad.frames)
    broken[8] ^= 1  # the body checksum
    answers: list = []

    def done(result) -> None:
        answers.append(result)
        if result.error is not None:  # what the servicer's stream does
            held.end("an earlier batch of the stream was refused")

    store.log.puts.batch(replace(bad, frames=bytes(broken)), done)
    store.log.puts.batch(good, done)
    store.settle()
    assert [type(one.error) for one in answers] == [InvalidRequestError, NotWritableError]
    assert store.frames() == []


@pytest.mark.parametrize("topic", [OWN, SCHEDULE_TOPIC])
def test_the_brokers_own_topics_are_written_by_its_services_alone(topic):
    store = started(auto_create_topics=False)
    assert isinstance(store.put_batch(batch([b"x"], topic)).error, InvalidRequestError)
    assert isinstance(store.put_all(message(b"x", topic))[0].error, InvalidRequestError)
    assert store.put_batch(own(fence(store), topic)).status is SendStatus.PUT_OK
    assert store.log.topics.get(topic).write_queues == 1


def test_a_service_creates_no_topic_that_producers_may_not_create():
    store = started(auto_create_topics=False)
    assert isinstance(store.put_batch(own(fence(store), "unknown")).error, NotFoundError)


def test_a_broker_that_is_drained_delivers_what_it_has_taken():
    store = started()
    store.put(b"x")
    store.log.topics.put(replace(store.log.topics.get("orders"), topic=DRAIN_TOPIC, permission=4))
    assert isinstance(store.put_batch(batch([b"x"])).error, NotWritableError)
    assert store.put_batch(own(fence(store), "orders")).status is SendStatus.PUT_OK
    assert isinstance(store.put_batch(own(fence(store), DRAIN_TOPIC)).error, InvalidRequestError)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("count", [1, 64])
def test_a_producer_cannot_say_that_it_delivers_a_message(checksum, count):
    store = started(property_checksum=checksum, segment_bytes=1 << 16)
    shape = FrameShape(encode_host(BORN), property_checksum=checksum)
    forged = ending_in(b"KEYS\x01a\x02" + COPY, count, shape)
    result = store.put_batch(forged)
    assert isinstance(result.error, InvalidRequestError)
    assert result.error.fields["reason"] == "source_item"
    (unary,) = store.put_all(message(properties={"PSRC": COPY[5:].decode()}))
    assert isinstance(unary.error, InvalidRequestError)
    held = fence(store)
    assert store.put_batch(replace(forged, fence=held.obstacle)).status is SendStatus.PUT_OK
    assert {source_of(frame.properties_raw) for frame in store.frames()} == {MessageSource(7, 4096)}


@pytest.mark.parametrize("count", [1, 64])
def test_a_message_that_is_sent_on_with_its_properties_is_taken_and_proves_nothing(count):
    store = started(segment_bytes=1 << 16)
    sent_on = ending_in(COPY + b"\x02KEYS\x01a", count)
    assert store.put_batch(sent_on).status is SendStatus.PUT_OK
    numbered = ending_in(COPY, count, FrameShape(encode_host(BORN), producer=9))
    assert store.put_batch(numbered).status is SendStatus.PUT_OK
    assert {source_of(frame.properties_raw) for frame in store.frames()} == {None}


def test_few_frames_and_columns_refuse_the_same_forgery():
    rules = FrameRules(STORE_HOST, 1 << 20, version2=False, property_checksum=False)
    forged = ending_in(COPY, 1)
    assert few_frames([forged], rules) is None
    with pytest.raises(BadFrame) as caught:
        check_batches([forged], rules)
    assert caught.value.reason == "source_item"
    assert few_frames([replace(forged, fence=lambda: None)], rules) is not None


def test_a_slaves_log_takes_no_stream_of_a_service():
    store = started()
    assert ask(store, TO_SLAVE) is None
    obstacle = fence(store).obstacle()
    assert obstacle is not None and Role.SLAVE.name in str(obstacle)
    assert ask(store, RoleChange(Role.SYNC_MASTER)) is None
    assert fence(store).obstacle() is None


@pytest.mark.parametrize("count", [1, 40], ids=["few", "many"])
def test_a_service_alone_appends_committed_copies_of_half_messages(count):
    """With the half's offset in PREPAREDTRANSACTIONOFFSET; such a message is in its queue."""
    store = started()
    fields = {"sys_flag": TRANSACTION_COMMIT, "prepared_offset": 4096}
    copies = batch([b"paid"] * count, "orders", **fields)
    refused = store.put_batch(copies)
    assert isinstance(refused.error, InvalidRequestError) and "SYSFLAG" in str(refused.error)
    stored = store.put_batch(replace(copies, fence=fence(store).obstacle))
    assert stored.status is SendStatus.PUT_OK
    frames = store.frames()
    assert [frame.queue_offset for frame in frames] == [*range(count)]
    for frame in frames:
        assert frame.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
        assert frame.prepared_transaction_offset == 4096
    for forbidden in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        half = batch([b"paid"] * count, "orders", sys_flag=forbidden)
        result = store.put_batch(replace(half, fence=fence(store).obstacle))
        assert isinstance(result.error, InvalidRequestError)
