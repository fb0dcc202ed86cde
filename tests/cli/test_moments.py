"""Moments and places on the command line."""

import time
from datetime import datetime

import pytest

from stratamq.cli.moments import parse_moment, parse_span, parse_start
from stratamq.client import AtTime
from stratamq.client.reading import checked_start
from stratamq.errors import InvalidRequestError
from stratamq.table.scan import _milliseconds

NOW_MS = 1_700_000_000_000


class Clock:
    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ns(self) -> int:
        return 0


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00Z", 0),
        ("2013-01-31T10:00:00Z", 1_359_626_400_000),
        ("2013-01-31 11:00:00+01:00", 1_359_626_400_000),
        ("2013-01-31T10:00:00.250Z", 1_359_626_400_250),
        ("1359626400", 1_359_626_400_000),
        ("1359626400000", 1_359_626_400_000),
        ("0", 0),
        ("-1h", NOW_MS - 3_600_000),
        ("-30m", NOW_MS - 1_800_000),
        ("-1d2h3m4s", NOW_MS - 93_784_000),
        ("-0s", NOW_MS),
        ("-99999d", 0),
    ],
)
def test_a_moment_is_a_date_a_number_or_so_long_ago(zone, text, milliseconds):
    assert parse_moment(text, Clock()) == milliseconds


@pytest.mark.parametrize("text", ["2013-01-31T10:00", "2013-07-31", "2013-01-31 10:00:00.250"])
def test_a_time_without_a_zone_means_the_same_here_in_the_client_and_in_a_scan(zone, text):
    moment = datetime.fromisoformat(text)
    milliseconds = parse_moment(text)
    assert checked_start(moment) == AtTime(milliseconds)
    assert _milliseconds(moment) == milliseconds
    assert (zone == "UTC") == (milliseconds == parse_moment(f"{moment.isoformat()}Z"))


@pytest.mark.parametrize(
    "text", ["", "now", "yesterday", "-5", "1h", "-1w", "-h", "2013-13-01", "1e9", "٣"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidRequestError, match="is not a time"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("17", 17),
        ("-10", -10),
        ("-0", "latest"),
        ("@-1h", AtTime(NOW_MS - 3_600_000)),
        ("@1359626400000", AtTime(1_359_626_400_000)),
    ],
)
def test_a_place_is_an_offset_a_distance_from_the_end_or_a_moment(text, place):
    assert parse_start(text, clock=Clock()) == place


@pytest.mark.parametrize("text", ["", "soon", "--5", "-", "1.5", "@soon", str(2**63)])
def test_what_is_no_place_is_refused(text):
    with pytest.raises(InvalidRequestError):
        parse_start(text)


def test_a_length_of_time_is_numbers_with_units():
    assert parse_span("90s") == 90_000
    assert parse_span("1h30m") == 5_400_000
    assert parse_span("2d") == 172_800_000
    for text in ("", "5", "m", "-5m", "5 m", "1.5h", "5x"):
        with pytest.raises(InvalidRequestError, match="no length of time"):
            parse_span(text)
