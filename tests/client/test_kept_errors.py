"""Errors that results keep: raising one leaves nothing that only the collector finds."""

import gc
import weakref
from collections.abc import Callable

import pytest

from stratamq.client.values import SendResult
from stratamq.errors import NotWritableError, OffsetOutOfRangeError, UnavailableError
from stratamq.formats.message_status import SendStatus

ERRORS = [
    UnavailableError("it stopped", perhaps_stored=True),
    NotWritableError("a slave", "role", "10.0.0.1:1"),
    OffsetOutOfRangeError("gone", 3, 9),
]
by_class = pytest.mark.parametrize("error", ERRORS, ids=lambda one: type(one).__name__)


class Body:
    """What a caller has in hand."""


def caught(raise_it: Callable[[], object]) -> tuple[Exception, weakref.ref[Body]]:
    body = Body()
    try:
        raise_it()
    except (UnavailableError, NotWritableError, OffsetOutOfRangeError) as error:
        return error, weakref.ref(body)
    raise AssertionError("nothing was raised")


@by_class
def test_what_a_caller_had_in_hand_goes_with_it(error):
    result = SendResult(SendStatus.UNKNOWN_ERROR, error=error)
    gc.disable()
    try:
        raised, body = caught(result.check)
        del raised
        assert body() is None
    finally:
        gc.enable()


@by_class
def test_the_error_that_is_raised_is_the_one_that_is_kept(error):
    error.request_id = "id"
    raised, _ = caught(SendResult(SendStatus.UNKNOWN_ERROR, error=error).check)
    assert type(raised) is type(error) and vars(raised) == vars(error)
    assert (str(raised), raised.args) == (str(error), error.args)
