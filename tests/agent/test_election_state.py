"""The election's value as JSON."""

import json

import pytest

from stratamq.errors import CorruptRecordError
from stratamq.formats.election_state import (
    ElectionState,
    Offer,
    Unable,
    decode_election_state,
    encode_election_state,
)

PLAIN = ElectionState("a", 9, 17, False, "", {"a": "host:1"}, frozenset({"a=host:2"}))
FULL = ElectionState(
    "a",
    9,
    17,
    unable=Unable("the disk is full", 31_000, 1, 42, 8_000),
    offer=Offer("b", 42, 8_000),
    moves=2,
    succeeds="c",
)


@pytest.mark.parametrize("state", [ElectionState(), PLAIN, FULL])
def test_a_value_is_read_as_it_was_written(state):
    assert decode_election_state(encode_election_state(state)) == state


def test_a_release_that_knows_no_offers_reads_the_value_of_one_that_does():
    document = json.loads(encode_election_state(PLAIN))
    assert not {"unable", "offer", "moves", "succeeds"}.intersection(document)


def test_an_offer_that_is_none_is_refused():
    document = json.loads(encode_election_state(FULL)) | {"offer": {"member": "b"}}
    with pytest.raises(CorruptRecordError):
        decode_election_state(json.dumps(document))
