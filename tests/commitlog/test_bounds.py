"""Nothing that a caller or a missing slave does makes the log's memory or its passes grow."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import grpc
import pytest
from stratamq_commitlog.messages import PutResult
from stratamq_commitlog.replica import follow_hub
from stratamq_commitlog.use_cases import append_stream
from stratamq_commitlog.use_cases.append_stream import AppendStream, SentBatch
from stratamq_commitlog.write.appender import MAX_PLACED_MESSAGES
from stratamq_commitlog.write.puts import STEP_MESSAGES

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.formats.log_state import ReplicaState
from stratamq.formats.message_status import SendStatus
from stratamq.rpc.status import from_rpc_error
from tests.support.brokers import COMMITLOG, Broker, broker_fixture
from tests.support.logs import BORN, Store, batch_of, message, raw_frame

# --- unary calls ---


SETTINGS = ("commitlog.segment_bytes=1048576", "commitlog.followers=")
broker = broker_fixture(*SETTINGS, rooms=[COMMITLOG])


def appended(broker: Broker) -> int:
    return broker.log.GetStatus(pb.GetStatusRequest()).appended_offset


@pytest.mark.parametrize("together", [False, True])
def test_a_call_of_too_many_messages_stores_nothing_and_names_the_limit(broker, together):
    before = appended(broker)
    messages = [pb.Message(topic="t", body=b"x", queue_id=0)] * 1025
    with pytest.raises(grpc.RpcError) as caught:
        broker.log.Append(pb.AppendRequest(messages=messages, all_or_nothing=together))
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidRequestError)
    assert str(error) == (
        "1025 messages in one call: at most 1024 (commitlog.max_call_messages). Make several "
        "calls, or use the append stream"
    )
    with pytest.raises(grpc.RpcError) as caught:
        broker.log.AppendRaw(pb.AppendRawRequest(frames=[raw_frame()] * 1025))
    assert str(from_rpc_error(caught.value)) == str(error)
    assert appended(broker) == before
    request = pb.AppendRequest(messages=messages[:-1], all_or_nothing=together)
    results = broker.log.Append(request).results
    assert [one.queue_offset - results[0].queue_offset for one in results] == list(range(1024))


def test_a_call_that_is_refused_by_its_size_stores_nothing(broker):
    before = appended(broker)
    messages = [pb.Message(topic="t", body=bytes(1 << 20), queue_id=0)] * 9
    with pytest.raises(grpc.RpcError) as caught:
        broker.log.Append(pb.AppendRequest(messages=messages))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "8388608" in caught.value.details()
    assert appended(broker) == before


@pytest.mark.parametrize("raw", [False, True])
def test_a_large_call_is_checked_and_appended_in_steps_between_which_others_get_their_turn(raw):
    store = Store(1 << 20)
    log = store.start()
    answers: list[list[PutResult]] = []
    given = 0

    def asked():
        nonlocal given
        for _ in range(1000):
            given += 1
            yield raw_frame() if raw else message(b"x")

    if raw:
        steps = log.puts.raw(asked(), answers.append)
    else:
        steps = log.puts.messages(asked(), False, answers.append)
    counts = [given for _ in steps]
    assert counts == list(range(STEP_MESSAGES, 1001, STEP_MESSAGES)), "a few at a time"
    store.send(message(b"another", topic="other"))
    appended = [0]
    while not answers:
        log.run_pass()
        appended.append(log.appender.counters.messages)
        store.scheduler.run_until_idle()
    assert max(b - a for a, b in itertools.pairwise(appended)) <= (2 * MAX_PLACED_MESSAGES)
    assert [result.status for result in answers[0]] == [SendStatus.PUT_OK] * 1000
    assert [result.queue_offset for result in answers[0]] == list(range(1000))


def test_a_call_that_the_log_stops_taking_between_two_steps_is_refused_whole():
    store = Store(1 << 20)
    log = store.start()
    answers: list[list[PutResult]] = []
    steps = log.puts.messages((message(b"x") for _ in range(100)), False, answers.append)
    next(steps)
    log.gate.stopped_reason = "the disk is gone"
    assert len([*steps]) == 100 // STEP_MESSAGES - 1
    (results,) = answers
    assert len(results) == 100
    assert {type(result.error) for result in results} == {NotWritableError}
    assert store.frames() == []


# --- the append stream ---


async def test_a_stream_whose_answers_are_not_read_takes_so_many_batches_and_no_more():
    """Empty batches: no byte of a frame is in flight."""
    store = Store(1 << 20)
    log = store.start()
    sent = 0

    async def numbers(count: int) -> AsyncIterator[int]:
        nonlocal sent
        for number in range(count):
            sent = number + 1
            yield number

    count = 3 * append_stream.MAX_IN_FLIGHT_BATCHES
    stream = AppendStream(log, BORN)
    responses = stream.run(numbers(count), lambda number: SentBatch(number, 0))
    first = asyncio.ensure_future(anext(responses))
    await first
    for _ in range(5 * count):
        await asyncio.sleep(0)  # the client sends, and reads nothing
    # Those of the response that it was given are answered.
    taken = len(first.result())
    assert sent <= append_stream.MAX_IN_FLIGHT_BATCHES + taken
    answered = taken
    async for results in responses:
        assert [one.sequence for one in results] == list(range(answered, answered + len(results)))
        answered += len(results)
    assert answered == sent == count


async def test_a_client_that_reads_no_answers_fills_no_memory_with_refusals(monkeypatch):
    """An answer may hold a part or a refusal for each message of its batch."""
    monkeypatch.setattr(append_stream, "MAX_WAITING_RUNS", 50)
    store = Store(1 << 20)
    stream = AppendStream(store.start(), BORN)
    wanted = batch_of([("orders", 99 - number, [b"x"]) for number in range(10)])
    sent = 0

    async def requests() -> AsyncIterator[int]:
        nonlocal sent
        for sent in range(1, 101):
            yield sent

    def decode(number: int) -> SentBatch:
        return SentBatch(number, 0, wanted.runs, wanted.lengths, wanted.frames, partial=True)

    responses = stream.run(requests(), decode)
    answered = [one.sequence for one in await anext(responses)]
    for _ in range(500):
        await asyncio.sleep(0)
    assert len(answered) < 10 and sent < 20
    async for results in responses:
        answered += [one.sequence for one in results]
    assert answered == list(range(1, 101))


async def test_a_stream_that_was_ended_before_it_is_read_takes_nothing():
    """Its producer has opened another while the answer to its opening was on the way."""
    store = Store(1 << 20)
    stream = AppendStream(store.start(), BORN)
    taken = []

    async def requests() -> AsyncIterator[int]:
        yield 0

    def decode(number: int) -> SentBatch:
        taken.append(number)
        return SentBatch(number, 0)

    stream.supersede()
    with pytest.raises(UnavailableError, match="opened another append stream"):
        await anext(stream.run(requests(), decode))
    assert taken == []


def test_answers_share_a_response_up_to_a_bound(monkeypatch):
    """A batch may have a queue offset for each of its messages."""
    monkeypatch.setattr(append_stream, "MAX_RESPONSE_RUNS", 10)
    store = Store(1 << 20)
    stream = AppendStream(store.start(), BORN)
    result = append_stream.BatchResult(SendStatus.PUT_OK, 0, tuple(range(4)))
    for sequence in range(8):
        stream._slots.append(append_stream._Slot(sequence, 0, result, 4))
    taken = []
    while results := stream._take_results():
        taken.append([one.sequence for one in results])
    assert taken == [[0, 1], [2, 3], [4, 5], [6, 7]]


# --- a slave that does not come ---


def test_what_waits_for_a_slave_that_does_not_come_is_remembered_within_a_bound(monkeypatch):
    monkeypatch.setattr(follow_hub, "MAX_ENDS", 64)
    store = Store(1 << 16, role="SYNC_MASTER", hold_without_slave=True)
    log = store.start()
    for _ in range(1000):
        store.send(message(b"x"))
        store.settle()
        assert len(log.hub._ends) <= 64
    assert log.offsets.confirmed == 0
    ends = {at for at, _, _ in store.members()} | {store.end()}
    for acknowledged in range(0, store.end(), 1003):
        log.report_replication(log.generation, [ReplicaState("s", acknowledged, True)])
        assert log.offsets.confirmed <= acknowledged
        assert log.offsets.confirmed in ends
    log.report_replication(log.generation, [ReplicaState("s", store.end(), True)])
    assert log.offsets.confirmed == store.end()
