"""Patterns of topic names: what they match, what they refuse, and that they never go back."""

import re

import pytest

from stratamq.errors import InvalidRequestError
from stratamq.formats.topic_pattern import TopicPattern


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "(?P<x>a)(?P=x)", "(", "\ud800"]
)
def test_what_re2_does_not_know_is_refused_with_the_reason(pattern):
    with pytest.raises(InvalidRequestError, match=r"the pattern .*RE2's syntax"):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", [re.compile("a b", re.VERBOSE), re.compile(b"a"), 7, None])
def test_what_is_no_text_or_has_other_flags_is_refused(pattern):
    with pytest.raises(InvalidRequestError):
        TopicPattern(pattern)


def test_a_name_is_matched_as_a_whole():
    pattern = TopicPattern("orders-.*")
    assert pattern.pattern == "orders-.*"
    assert [
        name for name in ("orders-", "orders-a", "old-orders-a") if pattern.fullmatch(name)
    ] == [
        "orders-",
        "orders-a",
    ]


def test_the_flags_of_a_compiled_pattern_count():
    assert TopicPattern(re.compile("A.b", re.IGNORECASE)).fullmatch("a-B")
    assert not TopicPattern(re.compile("A.b")).fullmatch("a-B")
    assert TopicPattern(re.compile("a.b", re.DOTALL)).fullmatch("a\nb")
    assert not TopicPattern(re.compile("a.b")).fullmatch("a\nb")


def test_matching_never_goes_back():
    """Python's engine takes 2 ** 250 steps for this."""
    assert not TopicPattern(re.compile("(a+)+b")).fullmatch("a" * 250)
