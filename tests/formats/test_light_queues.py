"""The places of a message in light queues, by its properties."""

import pytest

from stratamq.formats.light_queues import as_in_light_queue, light_places
from tests.support.logs import raw_frame


def text(names: str, offsets: str | None, *more: str) -> bytes:
    items = [f"INNER_MULTI_DISPATCH\x01{names}", *more]
    if offsets is not None:
        items.append(f"INNER_MULTI_QUEUE_OFFSET\x01{offsets}")
    return "\x02".join(items).encode()


def test_names_and_offsets_belong_together_in_their_order():
    assert light_places(text("%LMQ%a,%LMQ%b", "3,0")) == [("%LMQ%a", 3), ("%LMQ%b", 0)]
    assert light_places(text("%LMQ%ä", str((1 << 63) - 1))) == [("%LMQ%ä", (1 << 63) - 1)]


def test_queues_of_other_names_are_no_light_queues():
    assert light_places(text("other,%LMQ%b", "3,4")) == [("%LMQ%b", 4)]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        text("%LMQ%a", None),
        text("%LMQ%a", "1,2"),
        text("%LMQ%a,%LMQ%b", "1"),
        text("%LMQ%a", "-1"),
        text("%LMQ%a", "x"),
        text("%LMQ%a", str(1 << 63)),
        b"INNER_MULTI_QUEUE_OFFSET\x011",
        text("%LMQ%a", "1", "__CRC32#\x010123456789"),
    ],
    ids=["none", "no offsets", "more offsets", "fewer", "negative", "no number", "too large",
         "no names", "a record of ours"],
)  # fmt: skip
def test_a_text_that_no_broker_of_rocketmqs_writes_names_no_queue(properties):
    assert light_places(properties) == []


def test_a_frame_is_shown_with_its_place_in_the_light_queue():
    raw = raw_frame(b"x", queue_id=3, queue_offset=7, properties=text("%LMQ%a", "9"))
    shown = as_in_light_queue(raw, "%LMQ%a", 9)
    assert shown is not None
    assert (shown[12:16], shown[20:28]) == (bytes(4), (9).to_bytes(8, "big"))
    assert raw[:12] + raw[16:20] + raw[28:] == shown[:12] + shown[16:20] + shown[28:]
    assert as_in_light_queue(raw, "%LMQ%a", 8) is None
    assert as_in_light_queue(raw, "%LMQ%b", 9) is None
    assert as_in_light_queue(raw[:40], "%LMQ%a", 9) is None
