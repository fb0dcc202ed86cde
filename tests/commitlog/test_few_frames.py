"""Frames of a small pass, checked and filled one by one, are what columns make of them: whatever is
taken one by one the columns find good, and write alike, byte for byte. So does the kernel, which
takes what is taken one by one, however many there are."""

import random

import numpy as np
import pytest
from stratamq_commitlog.messages import FrameBatch, FrameRun, Numbers
from stratamq_commitlog.write import few_frames as few_module
from stratamq_commitlog.write.batch_check import BadFrame, FrameRules
from stratamq_commitlog.write.few_frames import FewFrames
from stratamq_commitlog.write.frame_fields import check_batches, fill_fields
from stratamq_commitlog.write.native_frames import plain_frames

from stratamq.formats import sysflag
from stratamq.formats.frame_layout import MAGIC_V2
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.producer_item import LARGEST_SEQUENCE, blank_item
from stratamq.formats.property_crc import encode_property_crc, reserve
from stratamq.formats.source_item import MessageSource, encode_source
from tests.support.kernels import current, outcome
from tests.support.logs import STORE_HOST, raw_frame

RULES = FrameRules(STORE_HOST, 600, version2=False, property_checksum=False)
SEALED_RULES = FrameRules(STORE_HOST, 600, version2=False, property_checksum=True)
V6 = encode_host(Host("2001:db8:0:0:0:0:0:1", 10911))
V6_RULES = FrameRules(V6, 600, version2=True, property_checksum=False)
PRODUCER = 0x0123_4567_89AB_CDEF
TEXT = b"TAGS\x01TagA\x02"


def batch_of(frames: list[bytes], runs: list[FrameRun], first: int | None = None) -> FrameBatch:
    lengths = np.array([len(one) for one in frames], np.uint32)
    numbers = None if first is None else Numbers(PRODUCER, first)
    return FrameBatch(runs, lengths, b"".join(frames), numbers)


def made(batches: list[FrameBatch], rules: FrameRules) -> tuple[bytes, list[int]] | None:
    """The frames as they go into the log, and their lengths; None: refused."""
    try:
        checked = check_batches(batches, rules)
    except BadFrame:
        return None
    firsts = [1000 + 50 * number for number in range(len(checked.runs))]
    fill_fields(
        checked, batches, rules, first_queue_offsets=firsts, start=1 << 40, now_ms=1_700_000_000_000
    )
    assert checked.runs == [run for batch in batches for run in batch.runs]
    return bytes(checked.raw), checked.lengths.tolist()


def taken(batches: list[FrameBatch], rules: FrameRules) -> bool:
    """One by one."""
    return isinstance(few_module.few_frames(batches, rules), FewFrames)


def many(batches: list[FrameBatch]) -> bool:
    return sum(len(batch.lengths) for batch in batches) > few_module.MAX_FEW


def alike(monkeypatch, batches: list[FrameBatch], rules: FrameRules = RULES) -> bool:
    """Hold all three against each other; whether the frames were taken one by one."""
    found, one_by_one = outcome(None, lambda: made(batches, rules)), taken(batches, rules)
    assert outcome(current(), lambda: made(batches, rules)) == found
    by_kernel = plain_frames(current(), batches, rules) is not None
    assert by_kernel is (one_by_one or (by_kernel and many(batches)))
    with monkeypatch.context() as columns_only:
        columns_only.setattr(few_module, "MAX_FEW", 0)
        assert not taken(batches, rules)
        assert outcome(None, lambda: made(batches, rules)) == found
    assert not (one_by_one and found is None)
    return one_by_one


def random_batches(chance: random.Random, numbered: bool, sealed: bool) -> list[FrameBatch]:
    batches, first = [], chance.randrange(LARGEST_SEQUENCE - 100)
    for _ in range(chance.randrange(1, 5)):
        runs, frames = [], []
        for _ in range(chance.randrange(1, 4)):
            topic = chance.choice(["orders", "t", "x" * 127])
            count = chance.randrange(1, 3)
            runs.append(FrameRun(topic, chance.randrange(4), count))
            for _ in range(count):
                text = TEXT * chance.randrange(0 if numbered else 1, 5)
                text = text + blank_item(PRODUCER) if numbered else text[:-1]
                text = reserve(text) if sealed else text
                body = chance.randbytes(chance.randrange(1, 200))
                flag = chance.choice([0, sysflag.COMPRESSED, sysflag.MULTI_TAGS])
                frames.append(raw_frame(body, topic, properties=text, sys_flag=flag))
        batches.append(batch_of(frames, runs, first if numbered else None))
        first += len(frames) + chance.randrange(3)
    return batches


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_what_producers_send_is_taken_one_by_one_and_written_as_columns_write_it(
    monkeypatch, seed, numbered, sealed
):
    batches = random_batches(random.Random(seed), numbered, sealed)
    assert alike(monkeypatch, batches, SEALED_RULES if sealed else RULES)


def changed(frames: list[bytes], at: int, xor: int) -> list[bytes]:
    whole = bytearray(b"".join(frames))
    whole[at] ^= xor
    found, start = [], 0
    for frame in frames:
        found.append(bytes(whole[start : start + len(frame)]))
        start += len(frame)
    return found


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_with_any_byte_changed_both_refuse_or_write_the_same(monkeypatch, numbered, sealed):
    text = TEXT + blank_item(PRODUCER) if numbered else TEXT[:-1]
    text, rules = (reserve(text), SEALED_RULES) if sealed else (text, RULES)
    frames = [raw_frame(b"a" * 9, "orders", properties=text), raw_frame(b"b", "t", properties=text)]
    runs = [FrameRun("orders", 1, 1), FrameRun("t", 2, 1)]
    refused = 0
    for at in range(sum(map(len, frames))):
        for xor in (0x01, 0x02, 0x10, 0x80, 0xFF, b"".join(frames)[at]):
            batch = batch_of(changed(frames, at, xor), runs, 7 if numbered else None)
            alike(monkeypatch, [batch], rules)
            refused += made([batch], rules) is None
    assert refused


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b""},
        {"body": b"x" * 601},
        {"topic": "another"},
        {"magic": MAGIC_V2},
        {"properties": b""},
        {"properties": TEXT + b"\0"},
        {"properties": TEXT + b"K\x01" + bytes(512) + b"x"},
        {"properties": TEXT + b"__CRC32#\x010000000000\x02"},
        {"store_host": V6},
        {"born_host": V6},
        {"sys_flag": 0x4},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_not_plain_is_left_to_the_columns(monkeypatch, fields):
    run = [FrameRun("orders", 0, 1)]
    for rules, text in ((RULES, TEXT), (V6_RULES, TEXT), (SEALED_RULES, reserve(TEXT))):
        if rules is RULES or "properties" not in fields:
            frame = raw_frame(**{"body": b"x", "topic": "orders", "properties": text} | fields)
            assert not alike(monkeypatch, [batch_of([frame], run)], rules)


def test_lengths_that_are_not_the_frames_are_left_to_the_columns(monkeypatch):
    frames = [raw_frame(b"x", properties=TEXT), raw_frame(b"y", properties=TEXT)]
    whole, run = b"".join(frames), [FrameRun("orders", 0, 2)]
    for first in (1, 90, len(frames[0]) - 1, len(frames[0]) + 1, len(whole) - 1, len(whole) + 9):
        lengths = np.array([first, max(0, len(whole) - first)], np.uint32)
        assert not alike(monkeypatch, [FrameBatch(run, lengths, whole)])


def test_a_numbered_frame_without_its_producers_item_is_left_to_the_columns(monkeypatch):
    for text in (TEXT[:-1], blank_item(PRODUCER + 1), blank_item(PRODUCER)[1:]):
        for rules, whole in ((RULES, text), (SEALED_RULES, reserve(text))):
            frame = raw_frame(b"x", properties=whole)
            assert not alike(monkeypatch, [batch_of([frame], [FrameRun("orders", 0, 1)], 7)], rules)


def test_a_frame_without_room_for_its_record_checksum_is_left_to_the_columns(monkeypatch):
    for text in (TEXT, reserve(b"")[1:], encode_property_crc(1)):
        frame = raw_frame(b"x", properties=text)
        assert not alike(monkeypatch, [batch_of([frame], [FrameRun("orders", 0, 1)])], SEALED_RULES)


def test_a_frame_that_says_it_is_a_copy_is_left_to_the_columns(monkeypatch):
    text = TEXT + encode_source(MessageSource(3, 4096))
    for rules, whole in ((RULES, text), (SEALED_RULES, reserve(text))):
        frame = raw_frame(b"x", properties=whole)
        assert not alike(monkeypatch, [batch_of([frame], [FrameRun("orders", 0, 1)])], rules)


def test_many_frames_are_left_to_the_columns(monkeypatch):
    frame = raw_frame(b"x", properties=TEXT[:-1])
    for count in (few_module.MAX_FEW, few_module.MAX_FEW + 1):
        batch = batch_of([frame] * count, [FrameRun("orders", 0, count)])
        assert alike(monkeypatch, [batch]) is (count == few_module.MAX_FEW)
        assert plain_frames(current(), [batch], RULES) is not None


def test_a_pass_whose_numbers_do_not_fit_is_refused_by_the_kernel():
    """Nothing that could be read or written beyond the frames, whatever the numbers say."""
    frame, native = raw_frame(b"x", properties=TEXT[:-1]), current()
    raw, stamp = bytearray(frame * 2), bytes(16)

    def filled(lengths, runs, batches, ids, offsets, sequences):
        arrays = [np.array(one, np.int64) for one in (runs, batches, ids, offsets, sequences)]
        native.fill(raw, np.array(lengths, np.uint32), *arrays, 0, stamp, False)

    size = len(frame)
    filled([size, size], [2], [2], [1], [5], [])
    for lengths, runs, batches, ids, offsets, sequences in (
        ([size, size + 1], [2], [2], [1], [5], []),
        ([size, 90], [2], [2], [1], [5], []),
        ([size, 2**32 - 1], [2], [2], [1], [5], []),
        ([size, size], [1], [2], [1], [5], []),
        ([size, size], [-1], [2], [1], [5], []),
        ([size, size], [2], [1], [1], [5], []),
        ([size, size], [2], [2], [1, 1], [5], []),
        ([size, size], [2], [2], [1], [], []),
        ([size, size], [2], [2], [1], [5], [1, 2]),
    ):
        with pytest.raises(ValueError):
            filled(lengths, runs, batches, ids, offsets, sequences)
    for topics, ends, heads in ((b"orders", [7], b""), (b"orders", [-1], b""), (b"", [0], b"x")):
        arrays = np.array([2]), np.array([2]), topics, np.array(ends), heads
        with pytest.raises(ValueError):
            native.plain(raw, np.array([size, size], np.uint32), *arrays, 0, 99, False, False)
