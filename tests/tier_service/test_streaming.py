"""Streams of several queues over tier and log: none waits for another, none is forgotten."""

import pytest
from stratamq_dispatcher.tier_fetches import answer_bytes

from stratamq.api.v1 import dispatcher_pb2
from stratamq.client import Message
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until, until_dispatched
from tests.tier_service.test_reading import (  # noqa: F401
    SEGMENT,
    broker,
    client,
    cold,
    send,
    tier,
)


@pytest.mark.parametrize(
    ("queues", "each"), [(1, 1 << 20), (16, 1 << 20), (64, 1 << 18), (10_000, 1 << 16)]
)
def test_answers_that_wait_in_a_stream_of_many_queues_are_smaller(queues, each):
    assert answer_bytes(queues) == each


def test_a_queue_that_has_ended_may_grow_while_others_are_read_on(broker, client):  # noqa: F811
    until_dispatched(client)
    request = dispatcher_pb2.PullStreamRequest(
        queues=[
            dispatcher_pb2.PullQueue(topic="t", queue_id=0, offset=0, end_offset=1),
            dispatcher_pb2.PullQueue(topic="t", queue_id=1, offset=999, end_offset=1001),
        ]
    )
    stream = broker.dispatcher.PullStream(request, timeout=60)
    first = {(one.stream_index, one.next_offset) for one in (next(stream), next(stream))}
    assert first == {(0, 1), (1, 1000)}
    for queue_id in (0, 1):
        client.send_message(Message("t", b"more", queue_id=queue_id))
    last = next(stream)
    assert (last.stream_index, last.next_offset) == (1, 1001)
    assert not list(stream)


def test_a_message_that_came_while_the_tier_was_read_is_given_behind_it(
    broker,  # noqa: F811
    client,  # noqa: F811
    tier,  # noqa: F811
):
    for number in range(10):
        client.send_message(Message("u", b"%d" % number, queue_id=0))
    send(client, 4_000, 2_000, size=1000)
    until(lambda: tier.messages().get(("u", 0)) == (0, 10), "the queue is in the tier")
    end = client.log_state().appended_offset
    below = end - end % SEGMENT
    until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
    until(lambda: next(one.min_offset for one in client.queues("u")) == 0, "the tier is known")
    request = dispatcher_pb2.PullStreamRequest(
        queues=[
            dispatcher_pb2.PullQueue(topic="u", queue_id=0, offset=0, end_offset=11),
            dispatcher_pb2.PullQueue(topic="t", queue_id=0, offset=1_499, end_offset=1_500),
        ]
    )
    freeze(broker.pid("tier"))
    try:
        stream = broker.dispatcher.PullStream(request, timeout=60)
        assert next(stream).stream_index == 1
        client.send_message(Message("u", b"10", queue_id=0))
        until_dispatched(client)
    finally:
        thaw(broker.pid("tier"))
    assert [one.next_offset for one in stream] == [10, 11]
