"""Errors that travel in a field of a response are rebuilt from their name."""

import pytest

from stratamq import errors
from stratamq.rpc.status import error_name, error_named

EVERY_ERROR = [
    errors.InvalidRequestError("bad frame", frame=7),
    errors.NotFoundError("no such queue"),
    errors.OffsetOutOfRangeError("too far", 10, 2**62),
    errors.NotWritableError("a slave takes no appends", "replica"),
    errors.BusyError("the disk is full", 250),
    errors.UnavailableError("recovering"),
    errors.CorruptionError("bad checksum", "00000000000000000000", 42),
    errors.CorruptRecordError("no magic", 99, "magic"),
    errors.ConfigurationError(["a must be b"]),
    errors.StoreRefusedError("written by a newer version"),
]


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_from_its_name_sentence_and_fields(error):
    rebuilt = error_named(error_name(error), error.message, error.fields)
    assert type(rebuilt) is type(error)
    assert rebuilt.message == error.message
    assert rebuilt.fields == error.fields


def test_an_unknown_name_gives_a_plain_error():
    assert error_name(ValueError("surprise")) == "INTERNAL"
    rebuilt = error_named("SOMETHING_NEW", "its message", {"frame": 3})
    assert type(rebuilt) is errors.StrataError
    assert rebuilt.fields == {"frame": 3}
