"""Which step of a state may be written, against the plain list of what was applied."""

import random

import pytest

from stratamq.follow.flushed_steps import AppliedStep, FlushedSteps


def test_a_step_is_covered_once_the_log_has_flushed_all_of_it():
    steps: FlushedSteps[str] = FlushedSteps(0, "start")
    for position in (100, 200, 300):
        steps.applied(position, f"at {position}")
    steps.flushed(250)
    assert steps.covered == AppliedStep(200, "at 200")
    assert steps.has_changes and steps.written.position == 0
    steps.written = steps.covered
    steps.flushed(299)
    assert not steps.has_changes


def test_a_state_that_begins_above_what_it_applied_waits_for_the_flush_there():
    steps = FlushedSteps(100, 7)
    steps.rewind(400, 9)
    assert steps.covered == AppliedStep(100, 7) and not steps.has_changes
    steps.flushed(400)
    assert steps.covered == AppliedStep(400, 9) and steps.has_changes


@pytest.mark.parametrize("seed", range(20))
def test_after_any_cuts_and_flushes_what_is_covered_is_the_newest_flushed_step(seed):
    chance = random.Random(seed)
    steps: FlushedSteps[int] = FlushedSteps(0, 0)
    ends, flushed, written = [0], 0, 0
    for value in range(1, 200):
        act = chance.choice(("apply", "apply", "flush", "write", "cut"))
        if act == "apply":
            ends.append(ends[-1] + chance.randrange(1, 9))
            steps.applied(ends[-1], value)
        elif act == "flush":
            flushed = max(flushed, chance.randrange(ends[-1] + 9))
        elif act == "write":
            steps.written = steps.covered
            written = steps.written.position
        else:
            cut_to = chance.randrange(ends[-1] + 1)
            ends = [end for end in ends if end < cut_to] + [cut_to]
            flushed, written = min(flushed, cut_to), min(written, cut_to)
            steps.rewind(cut_to, value)
        steps.flushed(flushed)
        assert steps.covered.position == max(end for end in ends if end <= flushed)
        assert (steps.newest.position, steps.written.position) == (ends[-1], written)
