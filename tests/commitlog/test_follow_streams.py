"""A follower's stream and a log that is closed and opened again while it begins."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from stratamq_commitlog.servicer.service import CommitLogServicer

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.errors import UnavailableError
from tests.support.logs import Store

OPEN = pb.FollowRequest(open=pb.FollowOpen(name="dispatcher"))


def test_a_follower_whose_opening_comes_while_the_log_is_opened_again_is_asked_to_retry():
    """A session of the log that is being closed would end without a message to the follower."""
    store = Store()
    store.start()
    servicer = CommitLogServicer(store.log, None)  # type: ignore[arg-type] # nothing is read
    servicer.opening = ""

    async def requests() -> AsyncIterator[pb.FollowRequest]:
        servicer.opening = "its end is being cut off"
        servicer.end_follows()
        yield OPEN

    async def first() -> pb.FollowResponse:
        return await anext(servicer.Follow(requests(), None))

    with pytest.raises(UnavailableError, match="its end is being cut off"):
        asyncio.run(first())
    assert store.log.hub.followers == {}
