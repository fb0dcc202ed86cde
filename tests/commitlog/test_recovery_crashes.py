"""Recovery is interrupted at every disk call, and each call fails in turn: it ends the same."""

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.files.simulated import (
    SimulatedCrash,
    SimulatedDisk,
    keep_everything,
    keep_nothing,
    random_choice,
)
from stratamq.formats.message_status import SendStatus
from tests.support.disks import write_file
from tests.support.fixtures import unpack
from tests.support.logs import (
    Store,
    batch,
    body_for,
    load_directory,
    message,
    segment_path,
)
from tests.support.sampling import sampled

pytestmark = pytest.mark.usefixtures("walked_both_ways")

SEGMENT = 2048


def torn_tail() -> Store:
    """Async flush, six segments, and a power loss that kept some pages of each."""
    store = Store(SEGMENT, seed=3, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    store.start()
    store.pass_time(1)
    for number in range(25):
        store.put_all(message(b"x" * 300, topic=f"t{number % 3}", properties={"KEYS": "k" * 60}))
        if number == 9:
            store.log.commit.request(store.end())
            store.settle()
    keep = random.Random(8)
    store.power_loss(lambda item: keep.getrandbits(8) if item.kind == "page" else True)
    return store


def cut_in_the_first_segment() -> Store:
    """Later segments, complete and durable, follow a corrupt frame."""
    store = Store(SEGMENT, seed=4)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(b"x" * 300) for _ in range(20)])
    store.kill()
    store.edit(segment_path(0), 500, b"\xff" * 40)
    return store


def killed_after_a_failed_flush() -> Store:
    store = Store(SEGMENT, seed=5)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(b"x" * 300) for _ in range(7)])
    store.disk.fail("flush", "commitlog/*", repeat=True)
    store.put_all(*[message(b"y" * 300) for _ in range(9)])
    store.disk.clear_faults()
    store.kill()
    return store


def untidy() -> Store:
    """A stray file, and a last segment cut short."""
    store = Store(SEGMENT, seed=6)
    store.start()
    store.pass_time(1)
    store.put_all(*[message(b"x" * 300) for _ in range(7)])
    store.kill()
    files = store.disk.files()
    last = max(store.segments())
    content = store.disk.contents(segment_path(last))
    files.unlink(segment_path(last))
    write_file(files, segment_path(last), content[: store.segments()[0].__len__() // 2])
    write_file(files, "commitlog/notes.txt", b"who put this here?")
    store.disk.tree.sync_all()
    return store


STATES: dict[str, Callable[[], Store]] = {
    made.__name__: made
    for made in (torn_tail, cut_in_the_first_segment, killed_after_a_failed_flush, untidy)
}
every_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES)


def facts(store: Store) -> tuple:
    assert store.log is not None
    return (
        store.end(),
        store.queues(),
        store.frame_bytes(),
        {base: raw for base, raw in store.segments().items() if base < store.end()},
    )


def reopened(disk: SimulatedDisk, seed: int = 0, **settings) -> Store:
    store = Store(SEGMENT, seed=seed, disk=disk, **settings)
    store.clock.advance_ms(random.Random(seed).randrange(10**6))
    return store


def reference_of(original: SimulatedDisk) -> tuple[tuple, int]:
    store = reopened(original.image(keep_everything))
    # A copy of the disk as a live kernel has it would be another test: `image` is a reboot.
    before = store.disk.calls
    store.start()
    return facts(store), store.disk.calls - before


@every_state
def test_the_states_are_worth_recovering(state):
    store = state()
    frames = len(store.frame_bytes())
    store.start()
    assert frames >= 1
    assert len(store.log.report) > 1 or state is killed_after_a_failed_flush


@every_state
@pytest.mark.parametrize("choice", [keep_nothing, keep_everything, None])
def test_a_power_loss_at_any_call_of_recovery_changes_nothing_of_its_outcome(state, choice):
    original = state().disk.image(keep_everything)
    expected, calls = reference_of(original)
    for call in sampled(range(1, calls + 1)):
        store = reopened(original.image(keep_everything), seed=call)
        store.disk.crash_at(store.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            store.start()
        store.power_loss(choice or random_choice(random.Random(call)))
        store.disk.clear_faults()
        store.start()
        assert facts(store) == expected, call
        assert store.put(b"and on").status is SendStatus.PUT_OK


@every_state
def test_a_kill_at_any_call_of_recovery_changes_nothing_of_its_outcome(state):
    whole = state()
    before = whole.disk.calls
    whole.start()
    expected = facts(whole)
    for call in sampled(range(1, whole.disk.calls - before + 1)):
        store = state()
        store.disk.crash_at(store.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            store.start()
        store.kill()
        store.disk.clear_faults()
        store.start()
        assert facts(store) == expected, call
        after_all = store.disk.image(keep_nothing)
        again = reopened(after_all)
        again.start()
        assert facts(again)[:3] == facts(store)[:3], call


@every_state
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_failing_call_refuses_the_store_or_changes_nothing(state, error):
    original = state().disk.image(keep_everything)
    expected, calls = reference_of(original)
    refused = 0
    for call in sampled(range(1, calls + 1)):
        store = reopened(original.image(keep_everything), seed=call)
        store.disk.fail_at(store.disk.calls + call, error)
        try:
            store.start()
        except StoreRefusedError as why:
            refused += 1
            assert str(why)
            store.disk.clear_faults()
            store.kill()
            if call % 2:
                store.power_loss(keep_nothing)
            store.start()
        assert facts(store) == expected, call
    assert refused > len(sampled(range(1, calls + 1))) / 2


def test_a_completed_last_file_is_durable_before_it_takes_the_place_of_the_short_one():
    original = untidy().disk.image(keep_everything)
    expected, _ = reference_of(original)
    store = reopened(original.image(keep_everything))
    store.disk.crash_on("sync_directory", "commitlog", nth=2)
    with pytest.raises(SimulatedCrash):
        store.start()
    store.power_loss(lambda item: item.kind != "page")
    store.disk.clear_faults()
    store.start()
    assert facts(store) == expected


def test_a_chain_of_crashes_in_recovery_ends_where_one_would():
    for seed in range(60):
        chance = random.Random(seed)
        original = chance.choice(list(STATES.values()))().disk.image(keep_everything)
        expected, calls = reference_of(original)
        store = reopened(original, seed=seed)
        for _ in range(4):
            store.disk.crash_at(store.disk.calls + chance.randrange(1, calls + 1))
            with contextlib.suppress(SimulatedCrash):
                store.start()
            store.power_loss(chance)
            store.disk.clear_faults()
            store.clock.advance_ms(chance.randrange(1000))
        store.start()
        assert facts(store) == expected, seed


@pytest.mark.parametrize("name", ["4.9.8-crash", "5.5.1-small-clean"])
def test_rocketmqs_directory_survives_a_power_loss_in_its_first_start(name, tmp_path):
    disk = SimulatedDisk()
    load_directory(disk, unpack(name, tmp_path))
    store = Store(65536, disk=disk.image(keep_everything))
    store.start()
    expected, calls = facts(store), store.disk.calls
    for call in sampled([*range(1, 40), *range(40, calls - 60, 23), *range(calls - 60, calls + 1)]):
        store = Store(65536, disk=disk.image(keep_everything))
        store.disk.crash_at(call)
        with pytest.raises(SimulatedCrash):
            store.start()
        store.power_loss(keep_nothing if call % 2 else random_choice(random.Random(call)))
        store.disk.clear_faults()
        store.start()
        assert facts(store) == expected, call


# --- single rules ---


def test_a_blank_that_a_failed_flush_left_in_the_cache_is_written_again():
    """P is right before the blank; the blank is seen, and the disk does not have it."""
    store = Store(16384)
    store.start()
    store.put_batch(batch([b"x" * 4000] * 3))
    store.restart()
    store.pass_time(1)
    store.disk.fail("flush", segment_path(0))
    lost = store.put(b"y" * 5000)
    assert lost.status is SendStatus.UNKNOWN_ERROR
    store.kill()
    store.disk.clear_faults()
    store.start()
    assert store.put(b"acknowledged").status is SendStatus.PUT_OK
    bodies = [frame.body for frame in store.frames()]
    assert len(bodies) == 5
    store.power_loss(keep_nothing)
    store.start()
    assert [frame.body for frame in store.frames()] == bodies


def test_what_recovery_accepts_after_a_failed_flush_is_on_the_disk_afterwards():
    store = killed_after_a_failed_flush()
    seen = store.frame_bytes()
    store.start()
    assert store.frame_bytes() == seen
    assert store.disk.evict() == []
    store.power_loss(keep_nothing)
    store.start()
    assert store.frame_bytes() == seen


def test_evidence_of_every_cut_is_kept_byte_for_byte():
    store = cut_in_the_first_segment()
    before = store.segments()
    store.start()
    end, last = store.end(), max(store.segments())
    assert last == 0
    cut = {base: raw for base, raw in before.items() if base > 0 and any(raw)}
    kept = store.aside()
    assert before[0][end:].rstrip(b"\0") in kept.values()
    for raw in cut.values():
        assert raw.rstrip(b"\0") in kept.values()
    assert len(kept) == 1 + len(cut)


def test_frames_that_were_cut_never_come_back():
    """Equal sizes, so that stale frames begin exactly where the next ones would end."""
    store = cut_in_the_first_segment()
    size = len(store.frame_bytes()[0])
    store.start()
    end = store.end()
    assert store.segments()[0][end:] == bytes(SEGMENT - end)
    for _ in range(2):
        assert len(store.frame_bytes()[-1]) == size
        store.put(b"n" * 300)
        store.power_loss(keep_everything)
        store.start()
    assert [frame.body[:1] for frame in store.frames()] == [b"x"] + [b"n"] * 2


@pytest.mark.parametrize("keep", [keep_nothing, keep_everything])
def test_frames_that_were_cut_do_not_come_back_with_a_page_that_nothing_wrote_since(keep):
    """The new messages end where a page does, and where a message began that was cut."""
    store = Store(16384)
    store.start()
    for _ in range(12):
        store.put(body_for(1024))
    store.kill()
    store.edit(segment_path(0), 2 * 1024 + 500, b"\xff" * 40)
    store.start()
    assert store.end() == 2048
    for _ in range(2):
        store.put(body_for(1024)[:-1] + b"n")
    assert store.end() == 4096
    store.power_loss(keep)
    store.start()
    assert [frame.body[-1:] for frame in store.frames()] == [b".", b".", b"n", b"n"]


def test_recovery_of_a_large_gap_of_unused_segments_removes_them_without_evidence():
    store = cut_in_the_first_segment()
    for base in range(2 * SEGMENT, max(store.segments()) + SEGMENT, SEGMENT):
        store.edit(segment_path(base), 0, bytes(SEGMENT))
    store.start()
    assert list(store.segments()) == [0]
    assert len(store.aside()) == 2
