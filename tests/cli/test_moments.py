"""Moments on the command line."""

import pytest

from stratamq.cli.moments import parse_moment
from stratamq.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01", 0),
        ("2013-01-31T10:00", 1_359_626_400_000),
        ("2013-01-31T10:00:00Z", 1_359_626_400_000),
        ("2013-01-31 11:00:00+01:00", 1_359_626_400_000),
        ("2013-01-31T10:00:00.250", 1_359_626_400_250),
        ("1359626400", 1_359_626_400_000),
        ("1359626400000", 1_359_626_400_000),
        ("0", 0),
    ],
)
def test_a_moment_is_a_date_or_a_number(text, milliseconds):
    assert parse_moment(text) == milliseconds


@pytest.mark.parametrize("text", ["", "now", "yesterday", "-5", "2013-13-01", "1e9", "٣"])
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidRequestError, match="moment"):
        parse_moment(text)
