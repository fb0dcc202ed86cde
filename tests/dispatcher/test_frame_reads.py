"""Frames behind units: gathered from several places, checked, and the first that is none named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stratamq_dispatcher.frame_reads import DamagedFrameError, read_frames

from stratamq.errors import OffsetOutOfRangeError
from stratamq.formats.frame_verify import NOWHERE
from stratamq.store.segment_reader import UnreadableError
from tests.support.kernels import agree
from tests.support.logs import raw_frame

SEGMENT = 1 << 24


class Log:
    """A log in memory: frames of one queue with gaps between them, some bytes unreadable."""

    gap_bytes = 1_000
    sealed_from = NOWHERE
    verified = None

    def __init__(self, gaps: list[int], body: int = 300) -> None:
        self.data = b""
        self.frames: list[bytes] = []
        self.physical: list[int] = []
        self.refused: set[int] = set()
        self.gone_from = SEGMENT
        self.asked_bytes = 0
        for number, gap in enumerate(gaps):
            self.data += bytes(gap)
            frame = raw_frame(
                b"%d" % number + bytes(body),
                queue_offset=number,
                physical_offset=len(self.data),
            )
            self.physical.append(len(self.data))
            self.frames.append(frame)
            self.data += frame

    def window(self, offset: int, limit: int) -> bytes:
        if offset >= self.gone_from:
            raise OffsetOutOfRangeError("gone", 0, SEGMENT)
        if any(offset <= at < offset + limit for at in self.refused):
            raise UnreadableError("refused", "segment", offset)
        self.asked_bytes += limit
        return self.data[offset : offset + limit]

    def read(self, sizes: list[int] | None = None, where: str = "queue") -> bytes:
        sizes = sizes or [len(frame) for frame in self.frames]
        count = len(sizes)
        pieces = read_frames(
            self,
            np.array(self.physical[:count]),
            np.array(sizes),
            np.arange(count),
            SEGMENT,
            where,
        )
        return b"".join(pieces)


GAPS = [0, 0, 500, 5_000, 0, 10, 2_000, 2_000, 0]


def test_frames_from_several_places_come_one_behind_the_other_and_gaps_are_not_read():
    log = Log(GAPS)
    assert log.read() == b"".join(log.frames)
    small = sum(gap for gap in GAPS if gap <= log.gap_bytes)
    assert log.asked_bytes == sum(map(len, log.frames)) + small


@pytest.mark.parametrize("row", range(len(GAPS)))
def test_a_frame_that_cannot_be_read_is_the_one_that_is_named(row):
    log = Log(GAPS)
    log.refused = {log.physical[row] + 20}
    with pytest.raises(DamagedFrameError, match="cannot be read: refused") as caught:
        log.read()
    assert (caught.value.queue_offset, caught.value.position) == (row, log.physical[row])


@pytest.mark.parametrize("row", range(len(GAPS)))
def test_of_several_faults_the_first_is_reported(row):
    """A frame is damaged, a later segment is gone, and another page cannot be read."""
    log = Log(GAPS)
    at = log.physical[row] + 200
    log.data = log.data[:at] + b"#" + log.data[at + 1 :]
    if row + 1 < len(GAPS):
        log.gone_from = log.physical[row + 1]
        log.refused = {log.physical[-1]}
    with pytest.raises(DamagedFrameError, match="where its frame is damaged") as caught:
        log.read()
    assert caught.value.queue_offset == row


def test_a_log_that_ends_within_a_frame_has_those_before_it():
    log = Log(GAPS)
    log.data = log.data[: log.physical[5] + 100]
    with pytest.raises(DamagedFrameError, match="where its frame is not") as caught:
        log.read()
    assert caught.value.queue_offset == 5
    assert log.read([len(frame) for frame in log.frames[:5]]) == b"".join(log.frames[:5])


def test_a_unit_that_claims_a_huge_frame_costs_no_memory():
    log = Log([0, 0, 0], body=1_000)
    sizes = [len(frame) for frame in log.frames]
    sizes[1] = 12 << 20
    with pytest.raises(DamagedFrameError, match="where its frame is not") as caught:
        log.read(sizes)
    assert caught.value.queue_offset == 1
    assert log.asked_bytes < 10_000


def test_many_frames_that_are_large_together_are_read():
    log = Log([0] * 12, body=1 << 20)
    assert log.read() == b"".join(log.frames)


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
LIGHT = "consumequeue/%LMQ%light/0"


@settings(max_examples=200)
@given(
    st.sampled_from([GAPS[:1], GAPS]),
    st.sampled_from(["queue", LIGHT]),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from([0, 4, 20, 28, 40]), NUMBERS)),
    st.lists(st.tuples(st.integers(0, 8), st.integers(-(1 << 31), (1 << 31) - 1)), max_size=2),
)
def test_whatever_frames_and_units_say_the_kernel_finds_what_python_finds(
    gaps, where, in_frames, in_units
):
    log = Log(gaps)
    data = bytearray(log.data)
    for row, place, number in in_frames:
        at = log.physical[row % len(gaps)] + place
        data[at : at + 8] = number.to_bytes(8, "big", signed=True)
    log.data = bytes(data)
    sizes = [len(frame) for frame in log.frames]
    for row, size in in_units:
        sizes[row % len(gaps)] = size
    agree(lambda: log.read(sizes, where))
