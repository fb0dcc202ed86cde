"""A table that changes are appended to: what a start reads after every stop, crash and damage."""

import errno
import random

import pytest

from stratamq.files.journal import Journal
from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
)

PATH = "stratamq/table.journal"


def load(disk: SimulatedDisk) -> tuple[dict[str, int], object, Journal]:
    table: dict[str, int] = {}
    journal = Journal(disk.files(), PATH)
    committed = journal.load(lambda piece: table.update(piece))
    return table, committed, journal


def made(disk: SimulatedDisk, count: int = 3) -> Journal:
    """Tables {"a": 1}, {"a": 2}, … committed as 1, 2, …"""
    journal = Journal(disk.files(), PATH)
    journal.load(lambda piece: None)
    journal.rewrite_all([{"a": 1}], 1)
    for number in range(2, count + 1):
        journal.append([{"a": number}], number)
    return journal


def test_what_was_written_and_appended_is_read():
    disk = SimulatedDisk()
    journal = made(disk)
    journal.append([{"b": 7}, {"c": 8}], {"n": 4})
    table, committed, again = load(disk)
    assert (table, committed, again.faults) == ({"a": 3, "b": 7, "c": 8}, {"n": 4}, [])
    again.append([{"a": 9}], 5)
    assert load(disk)[:2] == ({"a": 9, "b": 7, "c": 8}, 5)


def test_no_file_is_no_state_and_no_fault():
    table, committed, journal = load(SimulatedDisk())
    assert (table, committed, journal.faults, journal.can_append) == ({}, None, [], False)


def operations(journal: Journal) -> None:
    journal.append([{"a": 4}, {"b": 4}], 4)
    journal.begin()
    journal.add([{"a": 4}])
    journal.append([{"b": 5}], 5)
    journal.add([{"b": 4}])
    journal.finish([{"b": 5}, {"c": 6}], 6)
    journal.append([{"a": 7}], 7)


STATES = {
    3: {"a": 3},
    4: {"a": 4, "b": 4},
    5: {"a": 4, "b": 5},
    6: {"a": 4, "b": 5, "c": 6},
    7: {"a": 7, "b": 5, "c": 6},
}


@pytest.mark.parametrize("keep", [keep_nothing, keep_everything])
def test_a_crash_at_any_call_leaves_a_whole_state_that_is_not_older_than_what_was_durable(keep):
    original = SimulatedDisk()
    made(original)
    original = original.image(keep_everything)
    reference = original.image(keep_everything)
    _, _, journal = load(reference)
    before = reference.calls
    operations(journal)
    calls = reference.calls - before
    seen = set()
    for call in range(1, calls + 1):
        disk = original.image(keep_everything)
        _, committed, journal = load(disk)
        disk.crash_at(disk.calls + call)
        with pytest.raises(SimulatedCrash):
            operations(journal)
        table, committed, again = load(disk.image(keep))
        assert table == STATES[committed]
        seen.add(committed)
        if again.can_append:
            again.append([{"z": 1}], "on")
        else:
            again.rewrite_all([table, {"z": 1}], "on")
        assert load(disk.image(keep))[1] in (committed, "on")
    assert seen >= {3, 4, 6}


def test_after_a_failed_append_a_whole_table_is_asked_for_and_the_old_state_is_read():
    disk = SimulatedDisk()
    journal = made(disk)
    disk.fail("flush", f"{PATH}*", error=errno.EIO)
    with pytest.raises(OSError):
        journal.append([{"a": 4}], 4)
    assert not journal.can_append
    assert load(disk.image(keep_nothing))[1] == 3
    journal.rewrite_all([{"a": 5}], 5)
    journal.append([{"a": 6}], 6)
    assert load(disk.image(keep_nothing))[:2] == ({"a": 6}, 6)


def test_changes_that_outgrow_their_table_want_it_written_anew_and_not_before():
    disk = SimulatedDisk()
    journal = made(disk)
    appended = 0
    while not journal.must_rewrite:
        journal.append([{"a": "x" * 50_000}], 0)
        appended += 50_000
    assert 1 << 20 <= appended <= (1 << 20) + 200_000
    journal.rewrite_all([{"a": "x" * 2_000_000}], 1)
    appended = 0
    while not journal.must_rewrite:
        journal.append([{"a": "x" * 100_000}], 0)
        appended += 100_000
    assert appended >= 2_000_000


def test_every_flipped_byte_gives_an_earlier_whole_state_or_none_and_a_fault():
    disk = SimulatedDisk()
    made(disk)
    content = disk.contents(PATH)
    for at in range(len(content)):
        damaged = disk.image(keep_everything)
        damaged.rot(PATH, at, bytes([content[at] ^ 0x10]))
        table, committed, journal = load(damaged)
        assert committed in (None, 1, 2)
        assert table == ({} if committed is None else {"a": committed})
        assert journal.faults


def test_the_file_before_the_last_is_read_when_the_last_is_damaged():
    disk = SimulatedDisk()
    journal = made(disk)
    journal.rewrite_all([{"a": 9}], 9)
    disk.rot(PATH, 0, b"\0")
    table, committed, again = load(disk)
    assert (table, committed, again.found_previous) == ({"a": 3}, 3, True)
    assert not again.can_append


def test_what_a_longer_commit_of_another_process_left_behind_is_none():
    """Its last line would fit by its own checksum; its place in the chain is another."""
    disk = SimulatedDisk()
    made(disk, 1)
    size = len(disk.contents(PATH))
    _, _, journal = load(disk)
    journal.append([{"b": 2}], 2)
    tail = disk.contents(PATH)[size:]
    line = tail.index(b"\n") + 1
    torn = disk.contents(PATH)[:size] + tail[line:]
    disk.files().unlink(PATH)
    disk.files().create(PATH, len(torn), sparse=True)
    file = disk.files().open(PATH, writable=True)
    file.write(0, torn)
    file.flush()
    assert load(disk)[:2] == ({"a": 1}, 1)


def test_a_table_of_any_size_is_read_in_steps():
    disk = SimulatedDisk()
    journal = Journal(disk.files(), PATH)
    chance = random.Random(1)
    pieces = [
        {f"{piece}-{n}": chance.randrange(1 << 60) for n in range(500)} for piece in range(80)
    ]
    journal.rewrite_all(pieces, "all")
    table, committed, _ = load(disk)
    assert committed == "all"
    assert table == {key: value for piece in pieces for key, value in piece.items()}
