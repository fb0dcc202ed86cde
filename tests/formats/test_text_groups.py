"""Distinct texts are numbered in the order of their first appearance, however many there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.formats.text_groups import group_texts


def check(parts, lead):
    raw = np.frombuffer(bytes(lead) + b"".join(parts) + b"\0", np.uint8)
    lengths = np.array([len(part) for part in parts], np.int64)
    starts = lead + np.cumsum(lengths) - lengths
    index, texts = group_texts(raw, starts, lengths)
    assert texts == list(dict.fromkeys(parts))
    assert [texts[number] for number in index.tolist()] == parts


@pytest.mark.parametrize("lead", [0, 8], ids=["at the buffer's beginning", "with room in front"])
@given(st.lists(st.binary(max_size=6), max_size=20))
def test_any_texts(lead, parts):
    check(parts, lead)


@pytest.mark.parametrize("lead", [0, 7, 8])
@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_few_texts_in_many_rows(lead, kinds, turns):
    check([kinds[turn % len(kinds)] for turn in turns], lead)


@pytest.mark.parametrize("distinct", [1, 5, 6, 7, 100])
def test_many_distinct_texts_of_one_length(distinct):
    check([b"topic-%03d" % (number * 7 % distinct) for number in range(300)], 8)
