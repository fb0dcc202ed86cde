"""Properties and unique keys as producers make them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.client.outgoing import (
    LARGEST_PROPERTIES_BYTES,
    UniqueKeys,
    encode_message_properties,
)
from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import ASKED_TIMES
from stratamq.formats.properties import decode_properties

words = st.text(
    st.characters(exclude_characters=" \x01\x02", exclude_categories=["Cs"]), min_size=1
)
names = words.filter(lambda name: name not in ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", *ASKED_TIMES))


class JumpingClock:
    def __init__(self, times: list[int]) -> None:
        self.times = times

    def wall_ms(self) -> int:
        return self.times[0]

    def monotonic_ns(self) -> int:
        raise NotImplementedError


@given(words, st.lists(words, max_size=3), words, st.dictionaries(names, words, max_size=3))
def test_every_field_comes_back_as_its_property(tag, keys, unique_key, properties):
    decoded = decode_properties(encode_message_properties(tag, keys, unique_key, properties))
    expected = {"TAGS": tag, "UNIQ_KEY": unique_key, **properties}
    if keys:
        expected["KEYS"] = " ".join(keys)
    assert decoded == expected


def test_nothing_given_is_no_property():
    assert encode_message_properties("", (), "", {}) == b""


def test_a_single_key_may_be_given_as_text():
    assert encode_message_properties("", "N14228", "", {}) == b"KEYS\x01N14228"


@pytest.mark.parametrize(
    ("tag", "keys", "properties"),
    [
        ("", ["two words"], {}),
        ("", ["fine", ""], {}),
        ("", ["a\x02b"], {}),
        ("a\x02b", [], {}),
        ("\x02", [], {}),
        ("", [], {"name": "a\x02b"}),
        ("", [], {"": "value"}),
        ("", [], {"KEYS": "given as a property"}),
        ("", [], {"long": "x" * LARGEST_PROPERTIES_BYTES}),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(tag, keys, properties):
    with pytest.raises(InvalidRequestError):
        encode_message_properties(tag, keys, "", properties)


@given(st.lists(st.integers(1_600_000_000_000, 1_600_100_000_000), min_size=1), st.integers(0))
def test_unique_keys_never_repeat_whatever_the_clock_does(times, seed):
    keys = UniqueKeys(JumpingClock(times), random.Random(seed))
    made = [keys.next(time) for time in times for _ in range(3)]
    assert len(set(made)) == len(made)
    assert made == sorted(made)
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in made)


def test_two_producers_make_different_unique_keys():
    clock = JumpingClock([1_600_000_000_000])
    one, other = (UniqueKeys(clock, random.Random(seed)) for seed in (1, 2))
    assert one.next(clock.wall_ms()) != other.next(clock.wall_ms())
