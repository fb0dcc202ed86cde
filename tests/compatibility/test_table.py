"""The table of differences and the judge that reads it: both must detect a violation."""

import copy
import re
from pathlib import Path

import pytest

from tests.compatibility.explanations import EXPLANATIONS
from tests.compatibility.judge import KEY_FIELDS, judge
from tests.compatibility.openings import OPENINGS
from tests.compatibility.table import expected_rows, matches, rows
from tests.support.fixtures import expected

ROOT = Path(__file__).parent.parent.parent
KINDS = {*KEY_FIELDS, "time", "query"}
STORE = "4.9.8-small-clean"


def lines() -> list[dict]:
    return copy.deepcopy(list(expected(STORE, *KEY_FIELDS)))


def test_every_row_has_a_name_of_its_own_and_refers_to_known_lines():
    names = [row.name for row in rows()]
    assert names == list(dict.fromkeys(names))
    for row in rows():
        assert row.lines or row.tests(), row.name
        assert set(row.lines) <= KINDS, row.name


def test_every_row_is_seen_in_an_opening_or_a_test():
    for row in rows():
        assert row.seen_in, row.name
        for pattern in row.openings():
            if "@" not in pattern:
                assert any(matches(pattern, opening) for opening in OPENINGS), pattern
        for test in row.tests():
            path, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_every_explanation_of_single_lines_has_its_row():
    assert EXPLANATIONS.keys() <= {row.name for row in rows()}


def test_a_pattern_without_a_change_means_untouched_stores_only():
    assert matches("4.9.8-*", "4.9.8-crash")
    assert not matches("4.9.8-*", "4.9.8-crash+abort")
    assert not matches("4.9.8-*", "5.5.1-crash")
    assert matches("*+abort", "5.5.1-crash+abort")
    assert expected_rows("4.9.8-small-clean") <= {row.name for row in rows()}


def test_equal_answers_leave_nothing_to_complain_of():
    assert judge(lines(), lines(), KEY_FIELDS, {}).complaint() == ""


@pytest.mark.parametrize("kind", KEY_FIELDS)
def test_a_changed_field_is_seen_whatever_the_line(kind):
    ours = lines()
    line = next(line for line in ours if line["kind"] == kind)
    answer = next(name for name in reversed(line) if name not in ("kind", *KEY_FIELDS[kind]))
    line[answer] = "something else"
    (pair,) = judge(lines(), ours, KEY_FIELDS, {}).unexplained
    assert pair.kind == kind
    assert pair.fields() == {answer}


def test_a_line_too_few_or_too_many_is_seen():
    assert "here None" in judge(lines(), lines()[:-1], KEY_FIELDS, {}).complaint()
    assert "RocketMQ None" in judge(lines()[:-1], lines(), KEY_FIELDS, {}).complaint()


def test_another_order_is_seen():
    ours = lines()
    frames = [number for number, line in enumerate(ours) if line["kind"] == "frame"]
    ours[frames[3]], ours[frames[4]] = ours[frames[4]], ours[frames[3]]
    (pair,) = judge(lines(), ours, KEY_FIELDS, {}).unexplained
    assert pair.kind == "order"


def test_an_explanation_excuses_only_what_it_explains():
    ours = lines()
    changed = [line for line in ours if line["kind"] == "message"][:2]
    for line in changed:
        line["tagsCode"] = 1
    first = (changed[0]["topic"], changed[0]["queueId"], changed[0]["at"])
    verdict = judge(lines(), ours, KEY_FIELDS, {"row": lambda pair: pair.key == first})
    assert verdict.rows_met == {"row": 1}
    assert len(verdict.unexplained) == 1
