"""What followers hear: contiguous events, each in one segment, up to their horizon; a closing."""

import itertools
import random

import numpy as np
import pytest
from stratamq_commitlog.replica import follow_hub

from stratamq.follow.protocol import (
    Close,
    Closing,
    Event,
    Follower,
    FollowError,
    Opened,
    Progress,
)
from stratamq.formats.frame import Blank, Frame
from tests.support.listeners import Listener
from tests.support.logs import Store, batch, body_for, message, raw_frame

SEGMENT = 4096


@pytest.fixture
def store() -> Store:
    store = Store(SEGMENT)
    store.start()
    return store


def fill(store: Store, count: int = 30, seed: int = 1) -> None:
    chance = random.Random(seed)
    for number in range(count):
        if number % 3:
            store.send(message(b"x" * chance.randrange(600), topic=f"t{number % 4}"))
        else:
            store.send_batch(batch([b"y" * chance.randrange(200)] * 3, topic="b"))
        if chance.random() < 0.4:
            store.settle()
    store.settle()


def whole(listener: Listener) -> None:
    """All events together are the log, without a gap."""
    ranges = [event for event in listener.events if event.end > event.start]
    assert ranges[0].start == listener.opened.cut_to
    assert all(a.end == b.start for a, b in itertools.pairwise(ranges))
    assert ranges[-1].end == listener.store.log.offsets.confirmed


# --- what is heard ---


def test_a_follower_that_keeps_up_gets_lengths_and_runs_of_everything(store):
    listener = Listener(store)
    for seed in range(12):
        fill(store, 5, seed)
        listener.listen()
    whole(listener)
    assert all(
        e.lengths is not None and e.runs is not None for e in listener.events if e.end > e.start
    )


def test_a_follower_that_comes_late_gets_what_is_remembered(store):
    fill(store)
    listener = Listener(store)
    listener.listen()
    whole(listener)
    assert len(listener.events) <= 2 * len(store.segments()) + 1


def test_a_follower_far_behind_gets_bare_ranges_up_to_what_is_remembered(store, monkeypatch):
    monkeypatch.setattr(follow_hub, "_REMEMBERED_PASSES", 4)
    fill(store)
    listener = Listener(store)
    listener.listen()
    whole(listener)
    bare = [event.lengths is None for event in listener.events if event.end > event.start]
    assert bare == sorted(bare, reverse=True)
    assert True in bare
    assert False in bare


def test_after_a_restart_everything_before_it_is_a_bare_range(store):
    fill(store)
    store.restart()
    end = store.end()
    fill(store, 5)
    listener = Listener(store)
    listener.listen()
    whole(listener)
    for event in listener.events:
        if event.end > event.start:
            assert (event.lengths is None) is (event.start < end)


def test_a_follower_that_resumes_in_the_middle_of_a_pass_scans_to_its_end(store):
    store.put(b"allocates")
    store.put_batch(batch([b"x" * 50] * 10))
    frames = store.frames()
    for frame in frames[2:]:
        generation = store.log.generation
        listener = Listener(store, generation=generation, position=frame.physical_offset)
        assert listener.opened.cut_to == frame.physical_offset
        listener.listen()
        whole(listener)
        assert listener.events[0].lengths is None


def test_several_passes_make_one_event_of_at_most_4096_messages():
    store = Store(1 << 24)
    store.start()
    store.put(b"allocates")
    for _ in range(10):
        store.put_batch(batch([b""] * 1000))
    listener = Listener(store)
    counts = [len(event.lengths) for event in listener.listen()]
    assert counts == [3001 + 1000, 4000, 2000]


def test_events_never_cross_a_segment_and_blanks_are_the_last_of_their_event(store):
    listener = Listener(store)
    for _ in range(9):
        store.put(body_for(3000))
        store.put(b"x")
    listener.listen()
    whole(listener)
    blanks = [(at, value.length) for at, _, value in store.members() if isinstance(value, Blank)]
    assert len(blanks) == 8
    for at, length in blanks:
        (event,) = [e for e in listener.events if e.start <= at < e.end]
        assert event.end == at + length
        assert event.lengths[-1] == length
        assert sum(count for *_, count in event.runs) == len(event.lengths) - 1


def test_prepared_and_rollback_frames_are_in_events_and_in_runs_with_offset_zero(store):
    listener = Listener(store)
    store.put_raw(*[raw_frame(b"x", sys_flag=kind) for kind in (4, 12, 0)])
    listener.listen()
    assert [run[2] for event in listener.events for run in event.runs or []] == [0, 0, 0]


def test_the_horizon_of_dispatch_is_confirmed_and_that_of_replication_is_replicable(store):
    store.put(b"allocates")
    dispatcher, replica = Listener(store), Listener(store, "ha", replicable=True)
    end = store.end()
    store.send(message(b"not flushed yet"))
    store.step()
    assert store.log.offsets.appended > end
    for listener in (dispatcher, replica):
        listener.listen()
        assert listener.position == end
    store.settle()
    for listener in (dispatcher, replica):
        listener.listen()
        assert listener.position == store.end()


def test_under_async_flush_what_is_appended_is_in_an_event_before_it_is_flushed():
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=1_000)
    store.start()
    store.pass_time(1)
    listener = Listener(store)
    store.put(b"x")
    (event,) = [e for e in listener.listen() if e.end > e.start]
    assert event.confirmed == store.end()
    assert event.flushed == 0
    # The flush is heard of when it has happened: files may then hold what came before.
    store.pass_time(1_000)
    (progress,) = listener.listen()
    assert (progress.start, progress.end) == (store.end(), store.end())
    assert progress.flushed == store.end()


def test_the_offsets_of_events_never_go_back(store):
    listener = Listener(store)
    for seed in range(10):
        fill(store, 3, seed)
        listener.listen()
    fed = [(e.minimum, e.flushed, e.confirmed) for e in listener.events]
    assert all(a <= b for x, y in itertools.pairwise(fed) for a, b in zip(x, y, strict=True))
    assert all(e.end <= e.confirmed for e in listener.events)
    assert all(e.generation == store.log.generation for e in listener.events)


def test_a_session_is_woken_by_everything_that_it_may_have_to_send(store):
    listener = Listener(store)
    store.put(b"x")
    assert listener.woken > 0
    listener.listen()
    listener.woken = 0
    store.log.hub.moved()
    assert listener.woken == 1
    listener.session.close()
    store.put(b"y")
    assert listener.woken == 1


def test_a_closed_session_is_forgotten_and_its_follower_is_not(store):
    listener = Listener(store)
    listener.listen()
    listener.report()
    assert store.log.hub.followers["dispatcher"].connections == 1
    listener.session.close()
    listener.session.close()
    assert store.log.hub.followers["dispatcher"].connections == 0
    store.put(b"x")
    again = Listener(store, generation=store.log.generation, position=listener.position)
    again.listen()
    assert again.position == store.end()


def test_two_sessions_of_one_name_are_both_served(store):
    first, second = Listener(store), Listener(store)
    fill(store, 5)
    for listener in (first, second):
        listener.listen()
        whole(listener)
    assert store.log.hub.followers["dispatcher"].connections == 2


@pytest.mark.parametrize("reported", ["nothing", "half", "all"])
def test_a_follower_that_drops_what_it_had_must_report_again_what_it_has_on_disk(store, reported):
    """A stop in order waits for it, and the checkpoint does not count on what it dropped."""
    fill(store, 12)
    hub, end = store.log.hub, store.end()
    listener = Listener(store)
    listener.listen()
    listener.report()
    assert hub.followers["dispatcher"].durable == end
    listener.session.close()
    again = Listener(store)  # it knows no generation: all of it is dropped
    state = hub.followers["dispatcher"]
    assert (state.applied, state.durable, state.durable_store_timestamp_ms) == (0, 0, 0)
    assert state.released == 0
    store.log.begin_close()
    store.settle()
    again.listen()
    if reported != "nothing":
        again.report(durable=end if reported == "all" else end // 2)
    unfinished = [] if reported == "all" else ["dispatcher"]
    assert hub.unfinished(["dispatcher"]) == unfinished


@pytest.mark.parametrize(
    ("lost", "unfinished"), [(0, []), (1, ["dispatcher"])], ids=["all", "less"]
)
def test_a_follower_that_reported_the_end_may_open_again_before_the_log_has_stopped(
    store, lost, unfinished
):
    """Streams end before the log does. What it reports then still counts."""
    fill(store, 12)
    hub, end = store.log.hub, store.end()
    listener = Listener(store)
    store.log.begin_close()
    store.settle()
    listener.listen()
    listener.report()
    assert hub.unfinished(["dispatcher"]) == []
    listener.session.close()
    again = Listener(store, generation=store.log.generation, position=end - lost)
    assert hub.unfinished(["dispatcher"]) == unfinished
    again.report(durable=end - lost)
    assert hub.unfinished(["dispatcher"]) == unfinished


def test_when_the_log_is_cut_every_stream_ends_without_a_closing(store):
    listener = Listener(store)
    store.put(b"x")
    store.log.hub.end_all()
    assert listener.session.ended
    assert listener.session.next() is None
    assert listener.closed_at is None


# --- closing ---


def test_a_follower_gets_everything_then_the_last_offsets_then_the_closing(store):
    listener = Listener(store)
    fill(store, 6)
    store.log.begin_close()
    store.settle()
    listener.listen()
    assert listener.closed_at == store.end()
    assert listener.events[-1].flushed == store.end()
    assert listener.session.next() is None


def test_a_follower_that_has_everything_gets_the_flushed_offset_before_the_closing():
    """Files may hold flushed data only: a follower needs its end before the stream ends."""
    store = Store(SEGMENT, flush_disk_type="ASYNC_FLUSH", flush_interval_ms=3_600_000)
    store.start()
    store.pass_time(1)
    listener = Listener(store)
    store.put(b"x")
    listener.listen()
    assert listener.position == store.end()
    assert listener.events[-1].flushed < store.end()
    store.log.begin_close()
    store.settle()
    listener.listen()
    assert listener.closed_at == store.end()
    assert listener.events[-1].flushed == store.end()


def test_nothing_is_closed_before_everything_is_flushed(store):
    store.put(b"allocates")
    listener = Listener(store)
    store.send(message(b"x"))
    store.step()
    store.log.begin_close()
    listener.listen()
    assert listener.closed_at is None
    store.settle()
    listener.listen()
    assert listener.closed_at == store.end()


def test_a_follower_that_connects_while_the_log_closes_gets_all_of_it(store):
    fill(store, 6)
    store.log.begin_close()
    store.settle()
    listener = Listener(store)
    listener.listen()
    whole(listener)
    assert listener.closed_at == store.end()


def test_after_a_failed_flush_there_is_no_closing(store):
    store.put(b"x")
    listener = Listener(store)
    store.disk.fail("flush", "commitlog/*")
    store.put(b"y")
    store.log.begin_close()
    store.settle()
    listener.listen()
    assert listener.closed_at is None
    assert listener.position == store.log.offsets.flushed < store.end()


# --- what followers hold against it ---


def test_random_schedules_always_give_a_stream_that_the_machine_accepts():
    for seed in range(25):
        chance = random.Random(seed)
        store = Store(chance.choice([700, 2048, 5000]), seed=seed)
        store.start()
        listeners = [Listener(store, f"f{n}", replicable=n == 2) for n in range(3)]
        for _ in range(60):
            kind = chance.randrange(6)
            if kind < 2:
                store.send(*[message(b"x" * chance.randrange(300)) for _ in range(kind + 1)])
            elif kind == 2:
                store.send_batch(batch([b"y" * chance.randrange(90)] * chance.randrange(1, 4)))
            elif kind == 3:
                store.step()
            elif kind == 4:
                store.scheduler.run_one()
            else:
                listener = chance.choice(listeners)
                listener.listen()
                if chance.random() < 0.3:
                    listener.session.close()
                    listeners.remove(listener)
                    listeners.append(
                        Listener(
                            store,
                            listener.session.state.name,
                            generation=store.log.generation,
                            position=listener.position,
                            replicable=chance.random() < 0.3,
                        )
                    )
        store.settle()
        for listener in listeners:
            listener.listen()
            assert listener.position == store.end()


def test_frames_are_the_same_through_events_as_in_the_log(store):
    listener = Listener(store)
    fill(store, 20)
    listener.listen()
    offsets = []
    for event in listener.events:
        at = event.start
        for length in event.lengths.tolist() if event.lengths is not None else []:
            offsets.append(at)
            at += length
    assert offsets == [at for at, _, _ in store.members()]
    assert [value.physical_offset for _, _, value in store.members() if isinstance(value, Frame)]


def test_the_machine_refuses_what_contradicts_the_order():
    opened = Opened(7, 0, 100, 0, 500, 500, 1000)
    good = Event(7, 100, 200, 500, 500, 0)

    def fed(*messages) -> Follower:
        machine = Follower()
        for received in messages:
            machine.receive(received)
        return machine

    wrong = [
        ([], good),
        ([], Closing(100)),
        ([opened], opened),
        ([opened], Event(8, 100, 200, 500, 500, 0)),
        ([opened], Event(7, 99, 200, 500, 500, 0)),
        ([opened], Event(7, 101, 200, 500, 500, 0)),
        ([opened], Event(7, 100, 99, 500, 500, 0)),
        ([opened], Event(7, 100, 501, 500, 500, 0)),
        ([opened], Event(7, 100, 1001, 2000, 2000, 0)),
        ([opened], Event(7, 100, 200, 500, 500, 0, np.array([50, 49], np.uint32))),
        ([opened], Closing(99)),
        ([opened, good], good),
        ([opened, good, Closing(200)], Event(7, 200, 300, 500, 500, 0)),
        ([], Opened(7, 0, -1, 0, 0, 0, 1000)),
        ([], Opened(7, 0, 0, 0, 0, 0, 0)),
    ]
    for before, received in wrong:
        with pytest.raises(FollowError):
            fed(*before).receive(received)
    assert isinstance(fed(opened, good).receive(Event(7, 200, 200, 500, 500, 0)), Progress)
    assert isinstance(fed(opened, good).receive(Closing(200)), Close)
