"""Timers: due once, in order, undone by a cut, a million of them in bounded memory."""

import json
import random
import tracemalloc

import numpy as np
import pytest

from stratamq.follow.log_rows import _document
from stratamq.follow.timers import Timers

SIZE = 100


class Model:
    """What timers are, said simply."""

    def __init__(self) -> None:
        self.timers: dict[int, tuple[int, int | None, int | None]] = {}
        self.taken: set[int] = set()

    def due(self, now_ms: int) -> set[int]:
        return {
            offset
            for offset, (due, delivered, closed) in self.timers.items()
            if closed is None
            and offset not in self.taken
            and (delivered is not None or due <= now_ms)
        }

    def cut(self, at: int) -> None:
        def before(place: int | None) -> int | None:
            return None if place is None or place >= at else place

        self.timers = {
            offset: (due, before(delivered), before(closed))
            for offset, (due, delivered, closed) in self.timers.items()
            if offset < at
        }
        self.taken.clear()


@pytest.mark.parametrize("seed", range(30))
def test_timers_are_what_a_simple_model_says(seed):
    chance = random.Random(seed)
    timers, model, end, now = Timers(soon=4), Model(), 0, 10_000
    for _ in range(300):
        match chance.choice(("add", "add", "add", "due", "due", "shown", "cut", "again", "later")):
            case "add":
                due = now + chance.randrange(-2_000, 6_000)
                timers.add(end, SIZE, due)
                model.timers[end] = (due, None, None)
                end += SIZE
            case "due":
                wanted = model.due(now)
                most = chance.randrange(1, 6)
                found = timers.due(now, most)
                assert {one.offset for one in found} <= wanted
                assert len(found) == min(most, len(wanted))
                waiting = [one.due_ms for one in found if one.delivered_at is None]
                assert waiting == sorted(waiting)
                model.taken |= {one.offset for one in found}
            case "shown" if model.timers:
                offset = chance.choice([*model.timers])
                due, delivered, closed = model.timers[offset]
                if delivered is None:
                    timers.delivered(offset, end)
                    model.timers[offset] = (due, end, closed)
                    model.taken.discard(offset)
                elif closed is None:
                    timers.closed(offset, end)
                    model.timers[offset] = (due, delivered, end)
                end += SIZE
            case "cut":
                end = chance.randrange(0, end + 1) // SIZE * SIZE
                assert timers.cut(end) == end or end == 0
                model.cut(end)
            case "again":
                restored = Timers(soon=4)
                restored.restore(timers.snapshot()())
                timers = restored
                model.taken.clear()
            case "later":
                now += chance.randrange(2_500)
        assert len(timers) == sum(closed is None for _, _, closed in model.timers.values())
        earliest = [due for o, (due, d, _) in model.timers.items() if d is None]
        due_ms = timers.due_ms()
        if model.due(now):
            assert due_ms is not None and due_ms <= now
        elif earliest and not model.taken:
            assert due_ms is not None and due_ms <= min(earliest)


def test_what_the_log_has_deleted_is_missed_and_counted():
    timers = Timers()
    for number in range(10):
        timers.add(number * SIZE, SIZE, 5)
    timers.delivered(0, 2_000)
    timers.forget_below(3 * SIZE)
    assert (timers.missed, len(timers)) == (2, 7)
    assert [one.offset for one in timers.due(5, 100)] == [n * SIZE for n in range(3, 10)]


def test_what_was_closed_is_forgotten_and_a_cut_below_that_begins_again():
    timers = Timers(undo_bytes=1_000)
    for number in range(5_000):
        at = number * 3 * SIZE
        timers.add(at, SIZE, 0)
        timers.delivered(at, at + SIZE)
        timers.closed(at, at + 2 * SIZE)
    assert timers._rows.count < 1_500
    assert timers.cut(5_000 * 3 * SIZE - 500) == 5_000 * 3 * SIZE - 500
    assert len(timers) == 1
    assert timers.cut(3 * SIZE) == 0
    assert (len(timers), timers.due_ms()) == (0, None)


def test_what_was_given_up_is_to_be_closed_until_the_log_says_that_it_is():
    timers = Timers()
    timers.add(0, SIZE, 5)
    assert len(timers.due(5, 9)) == 1
    timers.give_up(0)
    timers.begin()
    (one,) = timers.due(5, 9)
    assert timers.is_given_up(0) and one.delivered_at is None
    timers.closed(0, SIZE)
    timers.begin()
    assert (timers.due(5, 9), timers.is_given_up(0)) == ([], False)


def test_a_million_timers_take_what_the_module_says():
    count = 1_000_000
    due = np.random.default_rng(1).integers(0, 86_400_000, count, "i8")
    never = np.broadcast_to(np.int64(-1), count)
    columns = {
        "source": np.arange(count, dtype="i8") * SIZE,
        "due": due,
        "size": np.full(count, SIZE, "i4"),
        "delivered_at": never,
        "closed_at": never,
    }
    document = _document(columns, {"floor": 0, "at": 0})
    assert len(json.dumps(document)) < 10_000_000
    due = np.sort(due)
    tracemalloc.start()
    timers = Timers()
    timers.restore(document)
    timers.add(count * SIZE, SIZE, 90_000_000)  # the columns grow
    taken = timers.due(43_200_000, 1_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.due_ms for one in taken] == due[:1_000].tolist()
    assert held < 90 << 20
    assert len(timers) == count + 1


def test_the_work_for_a_timer_does_not_grow_with_their_number(monkeypatch):
    """All times are compared once for each window, not for each timer."""
    windows = []
    opened = Timers._open_window
    monkeypatch.setattr(Timers, "_open_window", lambda self: (windows.append(1), opened(self)))
    for count in (1_000, 10_000):
        timers, windows[:] = Timers(), []
        for number in range(count):
            timers.add(number * SIZE, SIZE, number * 100 // count)
        taken = [one for now in range(100) for one in timers.due(now, count)]
        assert [one.offset for one in taken] == [number * SIZE for number in range(count)]
        assert len(windows) <= 2


def test_a_snapshot_stays_what_it_was_while_the_timers_go_on():
    timers = Timers(undo_bytes=0)
    for number in range(1_500):
        timers.add(number * SIZE, SIZE, number)
    timers.closed(1_399 * SIZE, 1_500 * SIZE)
    made = timers.snapshot()
    saved = timers.snapshot()()
    for number in range(1_000):
        timers.closed(number * SIZE, (2_000 + number) * SIZE)
    timers.cut(1_400 * SIZE)
    for number in range(1_400, 3_000):
        timers.add(number * SIZE, SIZE, -number)
    timers.forget_below(500 * SIZE)
    assert made() == saved


def test_many_of_one_time_are_taken_in_the_order_of_the_log_and_a_few_at_a_time():
    timers = Timers(soon=4)
    for number in range(40):
        timers.add(number * SIZE, SIZE, 5)
    taken = []
    while found := timers.due(5, 3):
        assert len(timers._heap) <= 8
        taken += [one.offset for one in found]
        timers.add((100 + len(taken)) * SIZE, SIZE, 9)
    assert taken == [number * SIZE for number in range(40)]
