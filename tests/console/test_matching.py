"""What a filter of messages lets through."""

import pytest
from stratamq_console.matching import LONGEST_FILTER, filter_of, parse_path

from stratamq.errors import InvalidRequestError
from tests.console.frames import received

ORDER = b'{"order": {"state": "paid", "items": [{"sku": "A7", "count": 2}], "note": null}}'


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        ("order", True),
        ("$.order.state=paid", True),
        ('order.state="paid"', True),
        ("order.state=open", False),
        ("order.items[0].sku=A7", True),
        ("order.items[0].count=2", True),
        ("order.items[1]", False),
        ("order.items.sku", False),
        ("order.note=null", True),
        ("order.absent", False),
        ("[0]", False),
    ],
)
def test_a_path_leads_to_a_value_or_nowhere(path, matches):
    assert parse_path(path).matches(ORDER) is matches


@pytest.mark.parametrize("path", ["a..b", "a[x]", "a[", ".", "a]"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InvalidRequestError, match="JSON path"):
        parse_path(path)


def test_a_body_that_is_no_json_has_no_values():
    assert not parse_path("a").matches(b"\xff\x00")
    assert not parse_path("a").matches(b"[" * 100_000)


@pytest.mark.parametrize(
    ("fields", "matches"),
    [
        ({}, True),
        ({"tag": "paid"}, True),
        ({"tag": "open || paid"}, True),
        ({"tag": "open"}, False),
        ({"tag": "*"}, True),
        ({"key": "order-1"}, True),
        ({"key": "order"}, False),
        ({"text": "SKU"}, True),
        ({"text": "north"}, True),
        ({"text": "south"}, False),
        ({"json": "order.state=paid", "tag": "open"}, False),
    ],
)
def test_every_part_of_a_filter_must_match(fields, matches):
    message = received(ORDER, tag="paid", keys=["order-1"], properties={"region": "North"})
    assert filter_of(fields).matches(message) is matches


def test_a_filter_is_bounded():
    with pytest.raises(InvalidRequestError):
        filter_of({"text": "x" * (LONGEST_FILTER + 1)})
