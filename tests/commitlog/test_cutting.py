"""A slave's log is cut to its master's history: what stays, what is kept, what followers hear."""

import asyncio
import random
from collections.abc import Callable

import pytest
from stratamq_commitlog.recovery import cut_file
from stratamq_commitlog.recovery.cut_file import CutDone, CutOrder
from stratamq_commitlog.replica.cutting import merged
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.use_cases.together import use_cases_of

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import InvalidRequestError, NotWritableError, UnavailableError
from stratamq.files.simulated import SimulatedCrash, SimulatedDisk, keep_nothing, random_choice
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import Role
from stratamq.service.worker import ThreadWorker
from tests.commitlog.test_slave import SEGMENT, copied, master, pieces, slave
from tests.support.listeners import Listener
from tests.support.logs import Store, queue_table
from tests.support.sampling import sampled

pytestmark = pytest.mark.usefixtures("walked_both_ways")


def listed(*pairs: tuple[int, int]) -> tuple[Generation, ...]:
    return tuple(Generation(number, start) for number, start in pairs)


def ask(store: Store, cut: CutOrder) -> CutDone:
    answers: list[CutDone] = []
    store.log.cut(cut, answers.append)
    store.settle()
    return answers[0]


def cut_to(store: Store, offset: int, *, empty: bool = False, generations=()) -> None:
    """As the service does it: ask, and open again if that is how it is done."""
    done = ask(store, CutOrder(offset, empty, tuple(generations)))
    assert done.error is None
    if done.reopen:
        store.log.close()
        store.log.open()


def calls_of(disk: SimulatedDisk, act: Callable[[], object]) -> int:
    before = disk.calls
    act()
    return disk.calls - before


def boundaries(store: Store) -> list[int]:
    return [at for at, _, _ in store.members()] + [store.end()]


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_was_cut_is_the_masters_up_to_there_and_continues(seed):
    original, chance = master(), random.Random(seed)
    copy = copied(original)
    end = chance.choice(boundaries(original))
    cut_to(copy, end, generations=original.log.state.generations)
    assert copy.end() == (end if end > 0 else 0)
    kept = [frame for frame in original.frames() if frame.physical_offset < end]
    assert copy.frames() == kept
    assert copy.queues() == queue_table(kept)
    for offset, data in pieces(original, end):
        assert copy.append_data(offset, data) is None
    assert copy.segments() == {
        base: raw for base, raw in original.segments().items() if base in copy.segments()
    }
    assert (copy.end(), copy.queues()) == (original.end(), original.queues())
    copy.power_loss(keep_nothing)
    copy.start()
    assert (copy.end(), copy.queues()) == (original.end(), original.queues())


def test_what_is_cut_is_kept_aside():
    original = master()
    copy = copied(original)
    before = copy.segments()
    end = boundaries(original)[5]
    assert end < SEGMENT
    cut_to(copy, end)
    kept = copy.aside()
    rest = before[0][end:].rstrip(b"\0")
    assert [raw for name, raw in kept.items() if f"{end:020}" in name] == [rest]
    for base in range(SEGMENT, original.end(), SEGMENT):
        assert [raw for name, raw in kept.items() if f"{base:020}" in name] == [before[base]]


def test_a_log_that_keeps_nothing_begins_where_the_master_does():
    original = master()
    copy = copied(original)
    first = 2 * SEGMENT
    cut_to(copy, first, empty=True, generations=original.log.state.generations)
    assert (copy.end(), copy.segments(), copy.queues()) == (0, {}, {})
    for offset, data in pieces(original, first):
        assert copy.append_data(offset, data) is None
    assert (copy.log.status().minimum_offset, copy.end()) == (first, original.end())
    copy.restart()
    assert (copy.log.status().minimum_offset, copy.end()) == (first, original.end())


def test_an_empty_log_with_a_segment_keeps_it_where_the_master_begins_and_gives_it_up_elsewhere():
    """A slave was killed after its first segment was made, before anything was written to it."""
    original = master()
    for begin, kept in ((0, True), (2 * SEGMENT, False)):
        copy = slave()
        copy.log.segments.allocate_ahead(0)
        copy.settle()
        copy.kill()
        copy.start()
        assert copy.segments() == {0: bytes(SEGMENT)} and copy.log.segments.offsets == [0]
        cut_to(copy, begin, empty=True, generations=original.log.state.generations)
        assert copy.log.segments.offsets == ([0] if kept else [])
        assert not any(name.startswith("commitlog") for name in copy.aside())
        for offset, data in pieces(original, begin):
            assert copy.append_data(offset, data) is None
        assert (copy.log.status().minimum_offset, copy.end()) == (begin, original.end())


def test_where_nothing_is_cut_the_log_stays_open_and_takes_over_the_history():
    original = master()
    copy = copied(original)
    listener = Listener(copy)
    done = ask(copy, CutOrder(copy.end(), False, tuple(original.log.state.generations)))
    assert done == CutDone()
    assert copy.log.generation == original.log.generation
    assert listener.session.ended
    again = Listener(copy, generation=copy.log.generation, position=listener.position)
    assert again.opened.generation == original.log.generation


def test_what_is_not_flushed_yet_becomes_visible_after_the_history_was_taken_over():
    original = master(3)
    copy = copied(original)
    end = copy.end()
    assert end % SEGMENT < SEGMENT - 300, "there is room for one more"
    original.put(b"more")
    offset, data = end, original.members()[-1][1]
    copy.log.append_data(copy.log.generation, offset, data, lambda error: None)
    copy.step()
    assert copy.log.status().confirmed_offset == end < copy.end()
    answers: list[CutDone] = []
    copy.log.cut(CutOrder(copy.end(), False, tuple(original.log.state.generations)), answers.append)
    copy.settle()
    assert answers == [CutDone()]
    assert copy.log.status().confirmed_offset == copy.end() == original.end()


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "comes while it is written"])
def test_bytes_of_the_master_before_are_not_stored_in_the_history_that_is_taken_over(waits):
    original = master(3)
    copy = copied(original)
    end, old = copy.end(), copy.log.generation
    assert end % SEGMENT < SEGMENT - 300, "there is room for one more"
    original.put(b"of the master before")
    data = original.members()[-1][1]
    original.restart()
    answers: list[object] = []
    if waits:
        copy.log.append_data(old, end, data, answers.append)
    copy.log.cut(CutOrder(end, False, tuple(original.log.state.generations)), lambda done: None)
    if not waits:
        copy.log.append_data(old, end, data, answers.append)
    copy.settle()
    assert copy.log.generation == original.log.generation != old
    assert copy.end() == end
    assert [type(error) for error in answers] == [UnavailableError]
    assert copy.append_data(end, data) is None, "of the new one they are taken"


def test_a_promotion_asked_for_while_a_history_is_taken_over_continues_from_that_history():
    original = master(3)
    copy = copied(original)
    original.restart()
    answers: list[object] = []
    cut = CutOrder(copy.end(), False, original.log.state.generations)
    taken_over = merged(list(copy.log.state.generations), cut)
    assert taken_over[-1].number == original.log.generation != copy.log.generation
    copy.log.cut(cut, answers.append)
    copy.log.set_role(RoleChange(Role.ASYNC_MASTER), answers.append)
    copy.settle()
    assert answers == [CutDone(), None]
    known = copy.log.state.generations
    assert list(known[:-1]) == taken_over
    copy.kill()
    copy.start()
    assert copy.log.state.generations[: len(known)] == known


def test_a_start_of_a_slave_begins_no_generation():
    copy = copied(master())
    before = list(copy.log.state.generations)
    copy.restart()
    copy.kill()
    copy.start()
    assert copy.log.state.generations == tuple(before)
    copy.restart(role="ASYNC_MASTER")
    assert len(copy.log.state.generations) == len(before) + 1


def test_followers_hear_where_their_history_ended():
    original = master()
    copy = copied(original)
    own = copy.log.generation
    end = boundaries(original)[9]
    cut_to(copy, end, generations=listed((77 << 51, 0), (78 << 51, original.end())))
    opened = Listener(copy, generation=own, position=original.end() - 10).opened
    assert (opened.cut_to, opened.generation) == (end, 78 << 51)
    assert Listener(copy, generation=own, position=100).opened.cut_to == 100


def test_followers_of_an_empty_slave_get_no_event_of_what_is_below_its_beginning():
    original = master()
    copy = slave()
    listener = Listener(copy)
    first = 2 * SEGMENT
    for offset, data in pieces(original, first):
        copy.append_data(offset, data)
    assert listener.session.ended and listener.listen() == []
    again = Listener(copy, generation=listener.opened.generation, position=0)
    again.listen()
    assert (again.opened.cut_to, again.position) == (first, copy.end())


def test_what_cannot_be_cut_is_refused_and_nothing_changes():
    original = master()
    assert isinstance(ask(original, CutOrder(0, True, ())).error, NotWritableError)
    copy = copied(original)
    beyond = CutOrder(original.end() + 1, False, ())
    assert isinstance(ask(copy, beyond).error, InvalidRequestError)
    disordered = CutOrder(0, False, listed((2, 100), (1, 0)))
    assert isinstance(ask(copy, disordered).error, InvalidRequestError)
    assert copy.end() == original.end()


def test_data_that_waits_for_a_log_that_is_cut_is_refused():
    original = master()
    copy = copied(original)
    copy.log.cut(CutOrder(0, True, ()), lambda done: None)
    assert isinstance(copy.append_data(copy.end(), b"x"), UnavailableError)


@pytest.mark.parametrize("empty", [False, True])
def test_a_crash_anywhere_in_a_cut_ends_in_the_same_log(empty):
    """Every call of the disk may be the last, with and without the power."""
    original = master()
    end = SEGMENT + 300
    end = max(at for at in boundaries(original) if at <= end)
    expected = [] if empty else [f for f in original.frames() if f.physical_offset < end]

    def asked() -> Store:
        copy = copied(original)
        assert ask(copy, CutOrder(end, empty, tuple(original.log.state.generations))).reopen
        copy.log.close()
        copy.kill()
        copy.prepare()
        return copy

    whole = asked()
    calls = calls_of(whole.disk, whole.log.open)
    assert calls > 10
    for crash_at in sampled(range(1, calls + 1)):
        copy = asked()
        copy.disk.crash_at(copy.disk.calls + crash_at)
        with pytest.raises(SimulatedCrash):
            copy.log.open()
        copy.power_loss(random_choice(random.Random(crash_at)))
        copy.disk.clear_faults()
        copy.start()
        assert copy.frames() == expected
        assert copy.queues() == queue_table(expected)
        assert copy.log.generation == original.log.generation
        assert cut_file.load(copy.files) is None


# --- the list ---


@pytest.mark.parametrize(
    ("own", "masters", "offset", "expected"),
    [
        ([(1, 0)], [(1, 0), (2, 500)], 300, [(1, 0), (2, 500)]),
        ([(1, 0), (2, 500)], [(1, 0), (2, 500)], 300, [(1, 0), (2, 500)]),
        ([(1, 0), (3, 200)], [(1, 0), (2, 500)], 200, [(1, 0), (3, 200), (1, 200), (2, 500)]),
        ([(1, 0), (3, 200), (1, 200), (2, 500)], [(1, 0), (2, 500)], 300,
         [(1, 0), (3, 200), (1, 200), (2, 500)]),
        ([(9, 0)], [(1, 0), (2, 500)], 400, [(9, 0), (1, 400), (2, 500)]),
        ([(9, 0)], [(1, 0), (2, 500)], 600, [(9, 0), (2, 600)]),
        ([(9, 0)], [], 100, [(9, 0)]),
        ([(9, 0), (8, 300)], [], 100, [(9, 0), (8, 100)]),
    ],
)  # fmt: skip
def test_a_list_continues_with_the_masters_from_the_generation_that_covers_the_cut(
    own, masters, offset, expected
):
    found = merged(list(listed(*own)), CutOrder(offset, False, listed(*masters)))
    assert found == list(listed(*expected))
    if masters:
        again = merged(found, CutOrder(offset, False, listed(*masters)))
        assert again == found, "a second time changes nothing"


def test_a_cut_that_was_written_down_is_forgotten_once_rocketmq_continued_with_the_log():
    """A slave died before it carried the cut out; then RocketMQ appended to its directory."""
    original = master()
    copy = copied(original)
    end = boundaries(original)[5]
    assert ask(copy, CutOrder(end, False, ())).reopen
    copy.kill()
    files = copy.disk.files()
    files.lock("lock", b"lock").close()  # what RocketMQ leaves in it
    copy.start()
    assert copy.frames() == original.frames()
    assert (copy.end(), copy.aside()) == (original.end(), {})
    copy.restart()
    assert copy.frames() == original.frames()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_forgotten_then_stays_forgotten_wherever_that_start_is_interrupted(seed):
    original, chance = master(), random.Random(seed)

    def asked() -> Store:
        copy = copied(original)
        assert ask(copy, CutOrder(boundaries(original)[5], False, ())).reopen
        copy.kill()
        copy.disk.files().lock("lock", b"lock").close()
        return copy

    whole = asked()
    for call in sampled(range(1, calls_of(whole.disk, whole.start) + 1)):
        copy = asked()
        copy.disk.crash_at(copy.disk.calls + call)
        with pytest.raises(SimulatedCrash):
            copy.start()
        copy.disk.clear_faults()
        copy.power_loss(random_choice(chance))
        copy.start()
        assert copy.frames() == original.frames(), call


def test_a_stop_waits_for_a_cut_although_another_was_refused_meanwhile():
    copy = copied(master())
    first, second = boundaries(copy)[3], copy.end() + 1

    async def run() -> None:
        reopening, may_end = asyncio.Event(), asyncio.Event()

        async def reopen() -> None:
            reopening.set()
            await may_end.wait()

        reads = ThreadWorker(asyncio.get_running_loop(), "reads")
        use_cases = use_cases_of(ServedLog(copy.log, opening=""), reads, reopen)
        servicer = CommitLogServicer(use_cases)
        cuts = [
            asyncio.create_task(servicer.Cut(pb.CutRequest(offset=offset), None))
            for offset in (first, second)
        ]
        while not (reopening.is_set() and cuts[1].done()):
            await asyncio.sleep(0)
            copy.settle()
        with pytest.raises((InvalidRequestError, UnavailableError)):
            await cuts[1]
        stop = asyncio.create_task(use_cases.replicating.cut_ended())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stop.done(), "the log is being opened again"
        may_end.set()
        await stop
        await cuts[0]

    asyncio.run(run())
