"""Reading ahead: the next hand-out finds what it needs without a call, and nothing that it should
not find."""

import asyncio
from dataclasses import replace

import pytest
from stratamq_delivery import reading
from stratamq_delivery.reading import AHEAD_MESSAGES, MessageReader
from stratamq_delivery.records import GroupPlace

from stratamq.errors import CorruptRecordError
from stratamq.follow.queues import PulledFrames
from stratamq.formats.frame import decode, encode

PLACE = GroupPlace("billing", "orders", 0, 0)
OTHER = GroupPlace("audit", "orders", 0, 0)
HOST = bytes(8)


class Queue:
    """One queue of the dispatcher; `asked` has the offset and number of each call."""

    def __init__(self, count: int = 2_000, minimum: int = 0) -> None:
        self.asked: list[tuple[int, int]] = []
        self.history = b"first"
        self.count, self.minimum = count, minimum

    async def pull(self, topic, queue_id, offset, most, wait_ms, max_bytes, tags=()):
        self.asked.append((offset, most))
        first = max(offset, self.minimum)
        frames = [self._frame(number) for number in range(first, min(offset + most, self.count))]
        looked_to = first + len(frames)
        return PulledFrames(b"".join(frames), self.minimum, self.count, looked_to)

    def _frame(self, number: int) -> bytes:
        body = self.history + b" %d" % number
        return encode(
            topic=b"orders", body=body, born_host=HOST, store_host=HOST, queue_offset=number
        )


def read(reader: MessageReader, start: int, count: int, token: int = 0, place=PLACE):
    return asyncio.run(reader.read(place, start, count, 1, token))


def bodies(found) -> list[bytes]:
    return [decode(message.raw).body for message in found.messages]


def test_hand_outs_that_follow_each_other_take_one_call():
    queue = Queue()
    reader = MessageReader(queue)
    for start in range(0, AHEAD_MESSAGES, 32):
        found = read(reader, start, 32)
        assert bodies(found) == [b"first %d" % number for number in range(start, start + 32)]
        assert found.runs == ((start, start + 32),)
        assert found.gone == (start, start)
    assert queue.asked == [(0, AHEAD_MESSAGES)]


def test_a_group_reads_ahead_for_itself():
    queue = Queue()
    reader = MessageReader(queue)
    assert bodies(read(reader, 0, 1)) == [b"first 0"]
    assert bodies(read(reader, 0, 1, place=OTHER)) == [b"first 0"]
    assert bodies(read(reader, 1, 1)) == [b"first 1"]
    assert len(queue.asked) == 2


@pytest.mark.parametrize("start", [0, 3, 500])
def test_one_that_goes_on_elsewhere_is_read_anew(start):
    queue = Queue()
    reader = MessageReader(queue)
    read(reader, 0, 2)
    assert bodies(read(reader, start, 1)) == [b"first %d" % start]
    assert len(queue.asked) == 2


def test_what_was_read_before_a_cut_is_not_handed_out():
    epoch, queue = 1, Queue()
    reader = MessageReader(queue, lambda: epoch)
    read(reader, 0, 1)
    epoch, queue.history = 2, b"second"
    assert bodies(read(reader, 1, 1)) == [b"second 1"]


def test_a_cut_while_it_is_read_takes_what_is_kept_as_well():
    epoch, queue = 1, Queue()
    reader = MessageReader(queue, lambda: epoch)
    pull = queue.pull

    async def cut_behind(*arguments):
        nonlocal epoch
        answer = await pull(*arguments)
        epoch, queue.history = 2, b"second"
        return answer

    queue.pull = cut_behind
    read(reader, 0, 1)
    assert bodies(read(reader, 1, 1)) == [b"second 1"]


def test_what_is_handed_out_again_is_read_alone():
    queue = Queue()
    read(MessageReader(queue), 5, 2, token=7)
    assert queue.asked == [(5, 2)]


def test_at_the_end_what_came_meanwhile_is_read():
    queue = Queue(count=3)
    reader = MessageReader(queue)
    assert bodies(read(reader, 0, 2)) == [b"first 0", b"first 1"]
    queue.count = 10
    assert len(read(reader, 2, 8).messages) == 8


def test_what_the_log_has_deleted_is_gone():
    found = read(MessageReader(Queue(minimum=10)), 4, 8)
    assert found.gone == (4, 10)
    assert found.runs == ((10, 12),)
    assert read(MessageReader(Queue(minimum=10)), 0, 5).gone == (0, 5)


@pytest.mark.parametrize("place", [8, 90, -200])
def test_a_damaged_message_is_not_handed_out(place):
    queue = Queue(count=20)
    pull = queue.pull

    async def damaged(*arguments):
        answer = await pull(*arguments)
        frames = bytearray(answer.frames)
        frames[place] ^= 1
        return replace(answer, frames=bytes(frames))

    queue.pull = damaged
    with pytest.raises(CorruptRecordError):
        read(MessageReader(queue), 0, 2)


def test_what_is_kept_of_many_groups_is_bounded(monkeypatch):
    queue = Queue(count=40)
    reader = MessageReader(queue)
    size = len(queue._frame(20))
    monkeypatch.setattr(reading, "KEPT_AHEAD_BYTES", 100 * size)
    places = [GroupPlace(f"group-{number}", "orders", 0, 0) for number in range(5)]
    for place in places:
        read(reader, 0, 1, place=place)
    for place in places:
        read(reader, 1, 1, place=place)
    assert len(queue.asked) > len(places), "the oldest were let go"
    newest = len(queue.asked)
    read(reader, 2, 1, place=places[-1])
    assert len(queue.asked) == newest
