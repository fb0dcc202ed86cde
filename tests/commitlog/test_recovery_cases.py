"""The table of recovery: every combination of facts selects exactly one case, the one its
paragraph describes."""

import itertools

import pytest
from stratamq_commitlog.recovery import recovery_cases
from stratamq_commitlog.recovery.recovery_cases import DAMAGE, ENDS, WalkCase, WalkFacts, judge

from stratamq.formats.frame_check import FrameOutcome

ALL_FACTS = [
    WalkFacts(outcome, *rest)
    for outcome in FrameOutcome
    for rest in itertools.product(
        (False, True),  # blank_fills_segment
        (False, True),  # next_segment_exists
        (False, True),  # in_place
        (None, False, True),  # record_checksum
        (False, True),  # zero_sector
        (False, True),  # queue_in_order
    )
]

PARAGRAPHS = {
    WalkCase.ACCEPT: lambda f: (
        f.outcome is FrameOutcome.GOOD
        and f.in_place
        and f.record_checksum is not False
        and (f.record_checksum is True or not f.zero_sector)
        and f.queue_in_order
    ),
    WalkCase.NEXT_SEGMENT: lambda f: (
        f.outcome is FrameOutcome.BLANK and f.blank_fills_segment and f.next_segment_exists
    ),
    WalkCase.END_AT_BLANK: lambda f: (
        f.outcome is FrameOutcome.BLANK and f.blank_fills_segment and not f.next_segment_exists
    ),
    WalkCase.END_CLEAN: lambda f: f.outcome is FrameOutcome.ZERO,
    WalkCase.END_TORN: lambda f: (
        f.outcome in (FrameOutcome.INCOMPLETE, FrameOutcome.BAD_LENGTH, FrameOutcome.STRUCTURE)
        or (f.outcome is FrameOutcome.BLANK and not f.blank_fills_segment)
    ),
    WalkCase.END_FOREIGN: lambda f: f.outcome is FrameOutcome.BAD_MAGIC,
    WalkCase.END_BODY: lambda f: f.outcome is FrameOutcome.BODY_CRC,
    WalkCase.END_MISPLACED: lambda f: f.outcome is FrameOutcome.GOOD and not f.in_place,
    WalkCase.END_RECORD: lambda f: (
        f.outcome is FrameOutcome.GOOD and f.in_place and f.record_checksum is False
    ),
    WalkCase.END_SECTOR: lambda f: (
        f.outcome is FrameOutcome.GOOD
        and f.in_place
        and f.record_checksum is None
        and f.zero_sector
    ),
    WalkCase.END_QUEUE: lambda f: (
        f.outcome is FrameOutcome.GOOD
        and f.in_place
        and f.record_checksum is not False
        and (f.record_checksum is True or not f.zero_sector)
        and not f.queue_in_order
    ),
    WalkCase.END_SEGMENT: lambda f: False,  # There are no bytes to have facts about.
}


def test_every_combination_of_facts_fits_exactly_one_paragraph():
    assert len(ALL_FACTS) == 8 * 2**5 * 3
    for facts in ALL_FACTS:
        fitting = [case for case, describes in PARAGRAPHS.items() if describes(facts)]
        assert len(fitting) == 1, facts


@pytest.mark.parametrize("case", WalkCase)
def test_judge_selects_the_case_whose_paragraph_fits(case):
    selected = [facts for facts in ALL_FACTS if judge(facts) is case]
    assert selected == [facts for facts in ALL_FACTS if PARAGRAPHS[case](facts)]
    assert selected or case is WalkCase.END_SEGMENT


def test_every_case_but_two_ends_the_log():
    assert set(WalkCase) - ENDS == {WalkCase.ACCEPT, WalkCase.NEXT_SEGMENT}


def test_only_bytes_that_look_written_are_damage():
    assert {WalkCase.END_AT_BLANK, WalkCase.END_CLEAN, WalkCase.END_SEGMENT} == ENDS - DAMAGE


def test_every_case_has_its_letter_and_paragraph_in_the_module():
    for case in WalkCase:
        assert f"\n{case.value}  {case.name}. " in (recovery_cases.__doc__ or ""), case


def test_facts_of_zero_or_garbage_do_not_depend_on_what_was_not_looked_at():
    for outcome in set(FrameOutcome) - {FrameOutcome.GOOD, FrameOutcome.BLANK}:
        assert len({judge(facts) for facts in ALL_FACTS if facts.outcome is outcome}) == 1
