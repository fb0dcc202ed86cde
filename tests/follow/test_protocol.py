"""The follower's machine: what it makes of each message, and every order it refuses."""

import itertools

import numpy as np
import pytest

from stratamq.follow.protocol import (
    Apply,
    Close,
    Closing,
    Cut,
    Event,
    Follower,
    FollowError,
    Opened,
    Progress,
)

OPENED = Opened(
    generation=7,
    generation_start=0,
    cut_to=100,
    minimum=0,
    confirmed=500,
    flushed=500,
    segment_bytes=1000,
)


def event(start: int, end: int, **fields) -> Event:
    defaults = {"generation": 7, "confirmed": 5_000, "flushed": 500, "minimum": 0}
    return Event(start=start, end=end, **{**defaults, **fields})


def fed(*messages) -> tuple[Follower, list]:
    machine = Follower()
    return machine, [machine.receive(message) for message in messages]


def test_an_ordinary_life_is_cut_apply_progress_close():
    first, second, nothing = event(100, 300), event(300, 1000), event(1000, 1000)
    _, did = fed(OPENED, first, second, nothing, Closing(1000))
    assert did == [Cut(OPENED), Apply(first), Apply(second), Progress(nothing), Close(1000)]


def test_a_range_may_end_at_a_segments_end_and_the_next_begin_there():
    _, did = fed(OPENED, event(100, 1000), event(1000, 2000))
    assert all(isinstance(done, Apply) for done in did[1:])


def test_lengths_must_add_up_to_the_range():
    assert isinstance(
        fed(OPENED, event(100, 300, lengths=np.array([150, 50], np.uint32)))[1][1], Apply
    )
    for wrong in ([150, 49], [150, 51], [], [2**32 - 1, 201]):
        with pytest.raises(FollowError):
            fed(OPENED, event(100, 300, lengths=np.array(wrong, np.uint32)))


@pytest.mark.parametrize(
    ("before", "contradiction"),
    [
        ([], event(100, 200)),
        ([], Closing(100)),
        ([OPENED], OPENED),
        ([OPENED], event(100, 200, generation=8)),
        ([OPENED], event(99, 200)),
        ([OPENED], event(101, 200)),
        ([OPENED], event(100, 99)),
        ([OPENED], event(100, 501, confirmed=500)),
        ([OPENED], event(100, 1001)),
        ([OPENED], event(100, 2000)),
        ([OPENED], Closing(99)),
        ([OPENED], Closing(101)),
        ([OPENED, event(100, 200)], event(100, 200)),
        ([OPENED, event(100, 200)], Closing(100)),
        ([OPENED, Closing(100)], event(100, 200)),
        ([OPENED, Closing(100)], Closing(100)),
        ([OPENED, Closing(100)], OPENED),
    ],
)
def test_what_contradicts_earlier_messages_is_refused(before, contradiction):
    machine, _ = fed(*before)
    with pytest.raises(FollowError):
        machine.receive(contradiction)


@pytest.mark.parametrize("wrong", [{"cut_to": -1}, {"segment_bytes": 0}, {"segment_bytes": -5}])
def test_an_answer_that_makes_no_sense_is_refused(wrong):
    fields = {name: getattr(OPENED, name) for name in Opened.__slots__}
    with pytest.raises(FollowError):
        fed(Opened(**{**fields, **wrong}))


def test_a_refused_message_leaves_the_machine_as_it_was():
    machine, _ = fed(OPENED)
    for wrong in (event(50, 60), event(100, 5_001), Closing(7)):
        with pytest.raises(FollowError):
            machine.receive(wrong)
    assert isinstance(machine.receive(event(100, 200)), Apply)


def test_every_order_of_three_messages_is_accepted_only_if_it_is_the_order():
    messages = [OPENED, event(100, 200), event(200, 300), Closing(300)]
    for order in itertools.permutations(messages):
        if list(order) == messages:
            fed(*order)
            continue
        with pytest.raises(FollowError):
            fed(*order)
