"""Both sides of a connection against each other and against RocketMQ's words, without a socket."""

import random
from collections.abc import Iterator

import pytest
from stratamq_ha.master_connection import (
    Acknowledged,
    Closed,
    MasterConnection,
    MasterLogView,
    MasterSettings,
    Transfer,
)
from stratamq_ha.slave_connection import Append, Left, SlaveConnection, SlaveSettings, WriteToMaster

from stratamq.formats.frame_layout import BLANK
from stratamq.formats.replication import REPORT, TRANSFER_HEAD
from tests.ha.captures import NAMES, capture
from tests.support.logs import Store, raw_frame

SEGMENT = 4096


def log_bytes(messages: int = 60, seed: int = 1) -> bytes:
    """A log of several segments, blanks and their tails included, up to its end."""
    chance = random.Random(seed)
    store = Store(SEGMENT)
    store.start()
    for _ in range(messages):
        store.put(chance.randbytes(chance.randrange(900)))
    content = b"".join(store.segments()[base] for base in sorted(store.segments()))
    return content[: store.end()]


LOG = log_bytes()


def view(end: int = len(LOG), minimum: int = 0, appended: int | None = None) -> MasterLogView:
    return MasterLogView(minimum, end, end if appended is None else appended, SEGMENT)


def master(now_ms: int = 0, **settings) -> MasterConnection:
    return MasterConnection(MasterSettings(**settings), now_ms)


def request(machine: MasterConnection, offset: int, log: MasterLogView, now_ms: int = 0) -> list:
    return list(machine.received(REPORT.pack(offset), log, now_ms))


# --- the master ---


def test_nothing_is_sent_before_the_request():
    machine = master()
    assert machine.next_transfer(view(), 100_000) is None


def test_a_request_of_zero_gets_the_last_segment():
    machine = master()
    request(machine, 0, view())
    transfer = machine.next_transfer(view(), 0)
    assert transfer is not None
    assert transfer.offset == len(LOG) - len(LOG) % SEGMENT


def test_a_slave_of_ours_gets_the_whole_log():
    machine = master(whole_log=True)
    request(machine, 0, view(minimum=SEGMENT))
    transfer = machine.next_transfer(view(minimum=SEGMENT), 0)
    assert transfer is not None and transfer.offset == SEGMENT


def test_any_other_request_is_where_it_begins():
    machine = master()
    assert request(machine, 1234, view()) == [Acknowledged(1234)]
    transfer = machine.next_transfer(view(), 0)
    assert transfer is not None
    assert (transfer.offset, transfer.head) == (1234, TRANSFER_HEAD.pack(1234, transfer.length))


def test_a_transfer_never_crosses_a_segment_and_is_never_larger_than_agreed():
    machine = master(whole_log=True, transfer_bytes=1000)
    request(machine, 0, view())
    sent = 0
    while (transfer := machine.next_transfer(view(), 0)) is not None:
        assert transfer.offset == sent
        assert 0 < transfer.length <= 1000
        assert transfer.offset // SEGMENT == (transfer.offset + transfer.length - 1) // SEGMENT
        sent += transfer.length
        assert machine.next_transfer(view(), 0) is None, "one at a time"
        machine.written(0)
    assert sent == len(LOG)


def test_a_heartbeat_goes_out_when_there_was_nothing_to_send_for_five_seconds():
    machine = master()
    request(machine, len(LOG), view())
    assert machine.next_transfer(view(), 4_999) is None
    assert machine.next_transfer(view(), 5_000) == Transfer(
        TRANSFER_HEAD.pack(len(LOG), 0), len(LOG), 0
    )
    machine.written(5_001)
    assert machine.next_transfer(view(), 10_000) is None
    assert machine.next_transfer(view(), 10_001) is not None


def test_only_what_may_be_shipped_is():
    machine = master()
    request(machine, SEGMENT, view())
    log = view(end=SEGMENT + 100, appended=SEGMENT + 300)
    transfer = machine.next_transfer(log, 0)
    assert transfer is not None and transfer.length == 100
    machine.written(0)
    assert machine.next_transfer(log, 0) is None


@pytest.mark.parametrize("first", [True, False])
def test_an_acknowledgement_beyond_the_masters_end_closes_the_connection(first):
    machine = master()
    if not first:
        request(machine, 100, view())
    (closed,) = request(machine, len(LOG) + 1, view())
    assert isinstance(closed, Closed) and closed.reason == "diverged"
    assert machine.next_transfer(view(), 100_000) is None


def test_a_request_for_what_was_deleted_is_closed_with_that_reason():
    (closed,) = request(master(), 100, view(minimum=SEGMENT))
    assert isinstance(closed, Closed) and closed.reason == "deleted"
    assert str(SEGMENT) in closed.sentence


def test_deletion_that_overtakes_a_slow_slave_closes_its_connection():
    machine = master(transfer_bytes=100)
    request(machine, 100, view())
    assert machine.tick(view(), 1_000) is None
    closed = machine.tick(view(minimum=SEGMENT), 2_000)
    assert closed is not None and closed.reason == "deleted"


def test_a_silent_slave_is_cut_off_after_twenty_seconds():
    machine = master()
    request(machine, 100, view(), now_ms=1_000)
    assert machine.tick(view(), 21_000) is None
    closed = machine.tick(view(), 21_001)
    assert closed is not None and closed.reason == "silent"
    assert machine.tick(view(), 30_000) is None, "once"


def test_acknowledgements_never_go_back():
    machine = master()
    request(machine, 100, view())
    assert request(machine, 500, view()) == [Acknowledged(500)]
    assert request(machine, 300, view()) == [Acknowledged(500)]


# --- the slave ---


def slave(end: int = 0, now_ms: int = 0, **settings) -> SlaveConnection:
    return SlaveConnection(SlaveSettings(**settings), SEGMENT, end, now_ms)


def sent(offset: int, data: bytes) -> bytes:
    return TRANSFER_HEAD.pack(offset, len(data)) + data


def test_bytes_that_do_not_continue_the_log_close_the_connection():
    machine = slave(end=500)
    (left,) = machine.received(sent(400, LOG[400:500]), 0)
    assert isinstance(left, Left) and left.reason == "diverged"
    assert list(machine.received(sent(500, LOG[500:600]), 0)) == []


def test_a_heartbeat_from_elsewhere_closes_it_as_well():
    (left,) = slave(end=500).received(sent(501, b""), 0)
    assert isinstance(left, Left) and left.reason == "diverged"


def test_what_is_no_frame_is_never_appended():
    (left,) = slave().received(sent(0, b"\0" * 200), 0)
    assert isinstance(left, Left) and left.reason == "protocol"


def test_frames_behind_which_no_blank_fits_end_the_connection():
    """However much comes then: it could belong to no segment, and would be kept for ever."""
    body = bytes(SEGMENT - len(raw_frame(b"")) - BLANK.size + 1)
    (left,) = slave().received(sent(0, raw_frame(body)), 0)
    assert isinstance(left, Left) and left.reason == "protocol"
    assert list(slave().received(sent(0, raw_frame(body[:-1])), 0)) == []


def test_small_pieces_wait_for_more_until_the_socket_is_drained():
    machine = slave()
    assert list(machine.received(sent(0, LOG[:1500]), 0)) == []
    (append,) = machine.drained()
    assert isinstance(append, Append)
    assert append.offset == 0 and append.data == LOG[: len(append.data)]
    assert len(append.data) > 500


def test_a_report_carries_what_was_appended_and_nothing_twice():
    machine = slave(end=100)
    assert machine.begin(0) == WriteToMaster(REPORT.pack(100))
    assert machine.was_appended(100, 1) is None
    assert machine.was_appended(400, 1) == WriteToMaster(REPORT.pack(400))
    assert machine.tick(4_999) is None
    assert machine.tick(5_001) == WriteToMaster(REPORT.pack(400))


def test_a_silent_master_is_left_after_twenty_seconds():
    machine = slave()
    machine.begin(0)
    left = machine.tick(20_001)
    assert isinstance(left, Left) and left.reason == "silent"


# --- both ---


def run(chance: random.Random, slave_has: int, whole_log: bool) -> tuple[bytes, int, int]:
    """Two machines over a wire that cuts and delays: the slave's log, where it begins, the acks."""
    ours = master(whole_log=whole_log, transfer_bytes=chance.choice([50, 1000, 32768]))
    theirs = slave(end=slave_has, append_bytes=chance.choice([1, 700, 1 << 18]))
    to_slave, to_master = bytearray(), bytearray(theirs.begin(0).data)
    stored = bytearray(LOG[:slave_has])
    begins, shippable, acknowledged = (0 if slave_has else -1), slave_has, -1
    for _ in range(20_000):
        shippable = min(len(LOG), shippable + chance.choice([0, 0, 100, 2_000]))
        log = view(end=max(shippable, 1))
        if to_master and chance.random() < 0.5:
            piece = take(chance, to_master)
            for effect in ours.received(piece, log, 0):
                assert isinstance(effect, Acknowledged)
                acknowledged = effect.offset
        if chance.random() < 0.5:
            transfer = ours.next_transfer(log, 0)
            if transfer is not None:
                to_slave += transfer.head
                to_slave += LOG[transfer.offset : transfer.offset + transfer.length]
                ours.written(0)
        effects: Iterator[Append | Left] = iter(())
        if to_slave and chance.random() < 0.5:
            effects = theirs.received(take(chance, to_slave), 0)
        elif chance.random() < 0.3:
            effects = theirs.drained()
        for effect in effects:
            assert isinstance(effect, Append), effect
            if begins < 0:
                begins = effect.offset
            assert effect.offset == begins + len(stored)
            stored += effect.data
            report = theirs.was_appended(effect.offset + len(effect.data), 0)
            assert report is not None
            to_master += report.data
        if acknowledged == len(LOG):
            break
    return bytes(stored), begins, acknowledged


def take(chance: random.Random, wire: bytearray) -> bytes:
    length = chance.choice([1, 7, 100, 5_000, len(wire)])
    piece = bytes(wire[:length])
    del wire[:length]
    return piece


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_pieces_and_the_order_the_slave_holds_every_byte(seed):
    chance = random.Random(seed)
    slave_has = chance.choice([0, 0, SEGMENT])
    stored, begins, acknowledged = run(chance, slave_has, whole_log=True)
    assert (begins, acknowledged) == (0, len(LOG))
    assert stored == LOG


@pytest.mark.parametrize("name", NAMES)
def test_our_slave_takes_what_a_rocketmq_master_sent(name):
    caught = capture(name)
    chance = random.Random(5)
    machine = SlaveConnection(SlaveSettings(append_bytes=1), caught.segment_bytes, 0, 0)
    wire, stored = bytearray(caught.to_slave), b""
    begins = caught.frames[0]["offset"]
    while wire:
        for effect in machine.received(take(chance, wire), 0):
            assert isinstance(effect, Append)
            assert effect.offset == begins + len(stored)
            stored += effect.data
            machine.was_appended(effect.offset + len(effect.data), 0)
    whole = [frame for frame in caught.frames if frame["size"]]
    expected = b"".join(
        caught.to_slave[frame["at"] + 12 : frame["at"] + 12 + frame["size"]] for frame in whole
    )
    assert stored == expected


@pytest.mark.parametrize("name", NAMES)
def test_our_master_understands_what_a_rocketmq_slave_sent(name):
    caught = capture(name)
    end = caught.frames[-1]["offset"] + caught.frames[-1]["size"]
    log = MasterLogView(0, end, end, caught.segment_bytes)
    machine = master()
    found = []
    for effect in machine.received(caught.to_master, log, 0):
        assert isinstance(effect, Acknowledged)
        found.append(effect.offset)
    assert machine.requested == caught.reports[0] == 0
    assert found == [max(caught.reports)]
