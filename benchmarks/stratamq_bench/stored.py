"""Compares what the services report with what was sent: a fast wrong answer is a failure."""

from collections.abc import Sequence

from stratamq.client import Client
from stratamq_bench.append_client import SenderState
from stratamq_bench.checks import Mismatch
from stratamq_bench.load import Load, Places

FOUND_BY_KEY = 32
PULLED = 64


def check_stored(
    client: Client, state: SenderState, load: Load, places: Places, *, followers: bool
) -> None:
    """Counts, ends of queues, bodies and keys of samples. Mismatch."""
    if state.next_number <= 0:
        raise Mismatch("nothing was stored")
    if sum(state.next_offsets) != state.next_number:
        raise Mismatch(
            f"{state.next_number} messages were sent, the queues hold {sum(state.next_offsets)}"
        )
    for physical_offset, number in state.samples:
        message = client.message_at(physical_offset)
        load.check(message)
        if int(message.unique_key, 16) != number:
            raise Mismatch(f"{message!r} has number {message.unique_key}, not {number}")
    if followers:
        check_queues(client, places.in_turn, state.next_offsets, load)
        check_index(client, state)


def check_queues(
    client: Client, queues: Sequence[tuple[str, int]], ends: Sequence[int], load: Load
) -> None:
    """Every queue ends where it should, and the last message of some is the right one."""
    stored = {(queue.topic, queue.queue_id): queue.max_offset for queue in client.queues()}
    for queue, expected in zip(queues, ends, strict=True):
        if stored.get(queue, 0) != expected:
            raise Mismatch(f"{queue} holds {stored.get(queue)} messages, not {expected}")
    some = list(zip(queues, ends, strict=True))
    for (topic, queue_id), expected in some[:: max(1, len(some) // PULLED)]:
        if expected:
            (message,) = client.pull(topic, queue_id, expected - 1, max_messages=1).messages
            if (message.queue_id, message.queue_offset) != (queue_id, expected - 1):
                raise Mismatch(f"{topic}/{queue_id} answers {expected - 1} with {message!r}")
            load.check(message)


def check_index(client: Client, state: SenderState) -> None:
    """Samples are found by their unique key, once."""
    for physical_offset, _ in state.samples[:FOUND_BY_KEY]:
        message = client.message_at(physical_offset)
        found = client.query_unique_key(message.topic, message.unique_key)
        if [one.physical_offset for one in found.messages] != [physical_offset]:
            raise Mismatch(f"the index finds {found.messages} for {message.unique_key}")
