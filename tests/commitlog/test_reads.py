"""Point and range reads: whole frames, honest bounds, nothing of a neighbour."""

import os
from pathlib import Path

import numpy as np
import pytest

from stratamq.errors import (
    CorruptRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from stratamq.formats.frame import Blank, Frame
from stratamq.formats.frame_heads import LENGTH, columns_of_heads
from stratamq.formats.log_state import ReplicaState
from tests.support.logs import Store, batch, body_for, message, segment_path

SEGMENT = 2048


@pytest.fixture
def store() -> Store:
    store = Store(SEGMENT)
    store.start()
    store.put_all(*[message(b"x" * (number * 53 % 400)) for number in range(20)])
    return store


def test_every_message_is_read_at_its_offset_first_and_last_included(store):
    members = store.members()
    for at, raw, value in members:
        if isinstance(value, Frame):
            assert store.log.frame_at(at) == raw
    assert isinstance(members[0][2], Frame)
    assert isinstance(members[-1][2], Frame)


def test_at_every_other_offset_no_message_begins(store):
    starts = {at for at, _, value in store.members() if isinstance(value, Frame)}
    for offset in range(store.end()):
        if offset not in starts:
            with pytest.raises(InvalidRequestError, match="no message begins"):
                store.log.frame_at(offset)


@pytest.mark.parametrize("beyond", [0, 1, 10**9])
def test_at_the_end_and_beyond_there_is_none_and_the_bounds_are_reported(store, beyond):
    for offset in (store.end() + beyond, -1 - beyond):
        with pytest.raises(OffsetOutOfRangeError) as error:
            store.log.frame_at(offset)
        assert (error.value.minimum, error.value.maximum) == (0, store.end())


def test_a_message_inside_the_body_of_another_is_none_unless_it_is_at_its_physical_offset(store):
    inner = store.frame_bytes()[0]
    at = store.put(b"...." + inner).physical_offset
    body_at = store.disk.contents(segment_path(at // SEGMENT * SEGMENT)).find(
        b"...." + inner, at % SEGMENT
    )
    offset = at // SEGMENT * SEGMENT + body_at + 4
    with pytest.raises(InvalidRequestError):
        store.log.frame_at(offset)


def test_a_damaged_body_is_named_and_never_served(store):
    at, raw, _ = store.members()[3]
    store.edit(segment_path(at // SEGMENT * SEGMENT), at % SEGMENT + 90, b"\xff")
    with pytest.raises(CorruptRecordError) as error:
        store.log.frame_at(at)
    assert (error.value.position, error.value.reason) == (at, "body_crc")
    assert len(raw) > 91


def test_what_is_not_confirmed_is_read_as_soon_as_it_is_and_said_until_then(store):
    store.send(message(b"in the cache"))
    begin = store.end()
    while store.end() == begin:
        store.scheduler.run_one()
        store.step()
    end = store.end()
    for read in (
        lambda: store.log.frame_at(begin),
        lambda: store.log.read_range(begin, end, 0),
        lambda: store.log.read_range(begin, end, 0, verify=True),
    ):
        with pytest.raises(OffsetOutOfRangeError, match=f"up to {end} is not confirmed") as error:
            read()
        assert error.value.maximum == begin
    assert pieces(store, begin, 0) == []
    store.settle()
    assert b"in the cache" in store.log.frame_at(begin)
    assert len(pieces(store, begin, end)) == 1


def test_a_master_without_its_slave_shows_nothing_of_what_it_alone_has_but_to_operators():
    store = Store(SEGMENT, role="SYNC_MASTER")
    log = store.start()
    place = store.put(b"here alone").physical_offset
    with pytest.raises(OffsetOutOfRangeError, match="not confirmed"):
        log.frame_at(place)
    assert list(log.read_range(0, 0, 0)) == list(log.read_range(0, 0, 0, verify=True)) == []
    (shown,) = log.read_range(0, 0, 0, unconfirmed=True)
    assert shown == (0, store.frame_bytes()[0])
    log.report_replication(log.generation, [ReplicaState("s", store.end(), True)])
    assert b"here alone" in log.frame_at(place)


def pieces(store: Store, start: int, end: int, most: int = 0) -> list[tuple[int, bytes]]:
    return list(store.log.read_range(start, end, most))


def test_a_range_is_the_logs_bytes_in_pieces_that_never_cross_a_segment(store):
    whole = b"".join(store.segments().values())
    for start, end in ((0, 0), (0, store.end()), (100, 101), (SEGMENT - 1, 2 * SEGMENT + 5)):
        got = pieces(store, start, end)
        limit = end or store.end()
        assert b"".join(raw for _, raw in got) == whole[start:limit]
        at = start
        for offset, raw in got:
            assert offset == at
            assert offset // SEGMENT == (offset + len(raw) - 1) // SEGMENT
            at += len(raw)
    assert pieces(store, store.end(), 0) == []


def test_a_range_is_limited_in_bytes(store):
    got = pieces(store, 50, 0, most=SEGMENT)
    assert sum(len(raw) for _, raw in got) == SEGMENT


def test_a_large_segment_comes_in_pieces_of_a_megabyte():
    store = Store(3 << 20)
    store.start()
    store.put_batch(batch([b"x" * 1_000_000] * 2))
    store.put(b"x" * 500_000)
    sizes = [len(raw) for _, raw in pieces(store, 0, 0)]
    assert sizes[:2] == [1 << 20, 1 << 20]
    assert sum(sizes) == store.end()


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 4), (0, 1 << 40), (1 << 40, 0)])
def test_a_range_that_is_not_in_the_log_is_refused_with_its_bounds(store, start, end):
    with pytest.raises(OffsetOutOfRangeError) as error:
        store.log.read_range(start, end, 0)
    assert (error.value.minimum, error.value.maximum) == (0, store.end())


def test_nothing_is_read_of_a_log_that_is_not_open():
    store = Store()
    log = store.prepare()
    reads = (
        lambda: log.frame_at(0),
        lambda: log.read_range(0, 0, 0),
        log.status,
        lambda: log.queue_page(0, 0),
        lambda: log.delete_below(0, 1, False),
    )
    for read in reads:
        with pytest.raises(UnavailableError):
            read()
    log.open()
    log.begin_close()
    log.close()
    for read in reads:
        with pytest.raises(UnavailableError):
            read()


def test_the_status_reports_what_is_there(store):
    status = store.log.status()
    assert status.minimum_offset == 0
    ends = (status.appended_offset, status.flushed_offset, status.confirmed_offset)
    assert ends == (store.end(),) * 3
    assert (status.segment_bytes, status.segment_count) == (SEGMENT, store.end() // SEGMENT + 1)
    assert (status.writable, status.not_writable_reason) == (True, "")
    assert status.generation == store.log.generation
    assert status.recovery_report == tuple(store.log.report)
    assert store.log.queue_page(0, 0) == (store.end(), [("orders", 0, 20)], 0)


def test_blanks_are_part_of_ranges_and_no_messages(store):
    blanks = [at for at, _, value in store.members() if isinstance(value, Blank)]
    assert blanks
    for at in blanks:
        with pytest.raises(InvalidRequestError):
            store.log.frame_at(at)


def test_a_deleted_segment_that_was_read_gives_its_space_back(tmp_path):
    """The log's own mapping must not keep the blocks of a file that it has unlinked."""
    store = Store(8192, root=tmp_path)
    store.start()
    store.put_all(*[message(body_for(3000)) for _ in range(8)])
    for frame in store.frames():
        store.log.frame_at(frame.physical_offset)
    list(store.log.read_range(0, 0, 0))
    store.log.delete_below(3 * 8192, 10, True)
    store.pass_time(1_000, ticks=8)
    held = [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if str(tmp_path / "commitlog") in line and "(deleted)" in line
    ]
    assert held == []
    names = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{fd}")
    ]
    assert [n for n in names if str(tmp_path / "commitlog") in n and "(deleted)" in n] == []


def test_a_verified_range_is_whole_frames_and_blanks_and_nothing_behind_them(store):
    members = store.members()
    pieces = list(store.log.read_range(0, 0, 0, verify=True))
    found = b"".join(data for _, data in pieces)
    assert found == b"".join(
        raw if isinstance(value, Frame) else raw[:8] for _, raw, value in members
    )
    inside = members[3][0] + 50
    assert (
        sum(len(data) for _, data in store.log.read_range(0, inside, 0, verify=True))
        == (members[3][0])
    )


def test_a_verified_range_stops_with_the_place_of_the_damage(store):
    at, _, _ = store.members()[3]
    store.edit(segment_path(0), at + 90, b"\xff")
    got = []
    with pytest.raises(CorruptRecordError) as error:
        for _, data in store.log.read_range(0, 0, 0, verify=True):
            got.append(data)
    assert (error.value.position, error.value.reason) == (at, "body_crc")
    assert len(b"".join(got)) == at


def test_a_verified_range_holds_frames_larger_than_a_piece():
    store = Store(1 << 23, max_message_bytes=4 << 20)
    store.start()
    sizes = [10, 3 << 20, 20, (1 << 20) + 5]
    store.put_all(*[message(b"x" * size) for size in sizes])
    found = b"".join(data for _, data in store.log.read_range(0, 0, 0, verify=True))
    assert found == b"".join(store.frame_bytes())


def test_heads_of_a_range_are_its_frames_without_bodies_and_its_lengths_with_blanks(store):
    members = store.members()
    pieces = list(store.log.read_heads(0, 0, 0, unconfirmed=False))
    lengths = np.concatenate([np.frombuffer(lengths, LENGTH) for _, _, lengths in pieces])
    places = [at for at, _, _ in members]
    assert lengths.tolist() == np.diff([*places, store.end()]).tolist()
    found = []
    for at, heads, its in pieces:
        if heads:
            raw = np.frombuffer(heads, np.uint8)
            columns = columns_of_heads(raw, np.frombuffer(its, LENGTH), at)
            found += zip(columns.physical_offset.tolist(), columns.size.tolist(), strict=True)
    frames = [(at, len(raw)) for at, raw, value in members if isinstance(value, Frame)]
    assert found == frames
    assert sum(len(heads) for _, heads, _ in pieces) < 120 * len(frames)
    inside = members[3][0] + 50
    (*_, (at, _, its)) = store.log.read_heads(0, inside, 0, unconfirmed=False)
    assert at + int(np.frombuffer(its, LENGTH).sum()) == members[3][0]


def test_heads_stop_where_no_frame_is_and_pass_a_damaged_body(store):
    at, _, _ = store.members()[3]
    store.edit(segment_path(0), at + 90, b"\xff")
    whole = list(store.log.read_heads(0, 0, 0, unconfirmed=False))
    assert sum(int(np.frombuffer(its, LENGTH).sum()) for _, _, its in whole) == store.end()
    store.edit(segment_path(0), at + 4, b"\x00")
    with pytest.raises(CorruptRecordError) as error:
        list(store.log.read_heads(0, 0, 0, unconfirmed=False))
    assert (error.value.position, error.value.reason) == (at, "magic")
    with pytest.raises(OffsetOutOfRangeError):
        store.log.read_heads(0, store.end() + 1, 0, unconfirmed=False)
