"""The table of recovery: every combination of facts selects exactly one case, the one its
paragraph describes."""

import itertools

import pytest
from stratamq_commitlog.recovery import recovery_cases
from stratamq_commitlog.recovery.recovery_cases import DAMAGE, ENDS, Case, Facts, judge

from stratamq.formats.frame_check import Outcome

ALL_FACTS = [
    Facts(outcome, *rest)
    for outcome in Outcome
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
    Case.ACCEPT: lambda f: (
        f.outcome is Outcome.GOOD
        and f.in_place
        and f.record_checksum is not False
        and (f.record_checksum is True or not f.zero_sector)
        and f.queue_in_order
    ),
    Case.NEXT_SEGMENT: lambda f: (
        f.outcome is Outcome.BLANK and f.blank_fills_segment and f.next_segment_exists
    ),
    Case.END_AT_BLANK: lambda f: (
        f.outcome is Outcome.BLANK and f.blank_fills_segment and not f.next_segment_exists
    ),
    Case.END_CLEAN: lambda f: f.outcome is Outcome.ZERO,
    Case.END_TORN: lambda f: (
        f.outcome in (Outcome.INCOMPLETE, Outcome.BAD_LENGTH, Outcome.STRUCTURE)
        or (f.outcome is Outcome.BLANK and not f.blank_fills_segment)
    ),
    Case.END_FOREIGN: lambda f: f.outcome is Outcome.BAD_MAGIC,
    Case.END_BODY: lambda f: f.outcome is Outcome.BODY_CRC,
    Case.END_MISPLACED: lambda f: f.outcome is Outcome.GOOD and not f.in_place,
    Case.END_RECORD: lambda f: (
        f.outcome is Outcome.GOOD and f.in_place and f.record_checksum is False
    ),
    Case.END_SECTOR: lambda f: (
        f.outcome is Outcome.GOOD and f.in_place and f.record_checksum is None and f.zero_sector
    ),
    Case.END_QUEUE: lambda f: (
        f.outcome is Outcome.GOOD
        and f.in_place
        and f.record_checksum is not False
        and (f.record_checksum is True or not f.zero_sector)
        and not f.queue_in_order
    ),
    Case.END_SEGMENT: lambda f: False,  # There are no bytes to have facts about.
}


def test_every_combination_of_facts_fits_exactly_one_paragraph():
    assert len(ALL_FACTS) == 8 * 2**5 * 3
    for facts in ALL_FACTS:
        fitting = [case for case, describes in PARAGRAPHS.items() if describes(facts)]
        assert len(fitting) == 1, facts


@pytest.mark.parametrize("case", Case)
def test_judge_selects_the_case_whose_paragraph_fits(case):
    selected = [facts for facts in ALL_FACTS if judge(facts) is case]
    assert selected == [facts for facts in ALL_FACTS if PARAGRAPHS[case](facts)]
    assert selected or case is Case.END_SEGMENT


def test_every_case_but_two_ends_the_log():
    assert set(Case) - ENDS == {Case.ACCEPT, Case.NEXT_SEGMENT}


def test_only_bytes_that_look_written_are_damage():
    assert {Case.END_AT_BLANK, Case.END_CLEAN, Case.END_SEGMENT} == ENDS - DAMAGE


def test_every_case_has_its_letter_and_paragraph_in_the_module():
    for case in Case:
        assert f"\n{case.value}  {case.name}. " in (recovery_cases.__doc__ or ""), case


def test_facts_of_zero_or_garbage_do_not_depend_on_what_was_not_looked_at():
    for outcome in set(Outcome) - {Outcome.GOOD, Outcome.BLANK}:
        assert len({judge(facts) for facts in ALL_FACTS if facts.outcome is outcome}) == 1
