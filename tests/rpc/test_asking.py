"""One service asks another: the answer belongs to whoever asked, and is kept by nobody else."""

import contextlib
import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from stratamq.api.v1 import tier_pb2 as pb
from stratamq.errors import NotFoundError, UnavailableError
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import TIER
from stratamq.rpc.status import to_status

ANSWER = 1 << 20
ASKED = 40
"""Times; more than `KEPT` of their answers would be found."""
KEPT = 3


@contextlib.asynccontextmanager
async def tier_of(method: str, handler, encode=None) -> AsyncIterator[Channels]:
    """Channels to a server with this one method."""
    service, name = METHODS[method].path.strip("/").split("/")
    parse = pb.FetchMessagesRequest.FromString
    handlers = {name: grpc.unary_unary_rpc_method_handler(handler, parse, encode)}
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channels = Channels(Endpoints(addresses={TIER: f"127.0.0.1:{port}"}), grpc.aio)
    try:
        yield channels
    finally:
        for channel in channels.close():
            await channel.close()
        await server.stop(None)


@contextlib.contextmanager
def traced_without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def test_answers_do_not_wait_for_the_cyclic_collector():
    async def handler(request, context):
        return bytes(ANSWER)

    async with tier_of("FetchMessages", handler) as channels:
        # The first call makes what all share.
        await ask(channels, "FetchMessages", pb.FetchMessagesRequest(), 60)
        with traced_without_collector():
            for _ in range(ASKED):
                found = await ask(channels, "FetchMessages", pb.FetchMessagesRequest(), 60)
                assert len(found) == ANSWER
                del found
            kept, _ = tracemalloc.get_traced_memory()
    assert kept < KEPT * ANSWER, f"{kept / ANSWER:.1f} answers of {ASKED} are in memory"


async def test_an_answer_that_is_not_framed_by_hand_comes_as_a_message():
    answer = pb.QueryTierKeyResponse(frames=b"12", lengths=[1, 1], truncated=True)

    async def handler(request, context):
        return answer

    encode = pb.QueryTierKeyResponse.SerializeToString
    async with tier_of("QueryTierKey", handler, encode) as channels:
        assert await ask(channels, "QueryTierKey", pb.QueryTierKeyRequest(), 60) == answer


async def test_a_service_that_refuses_raises_its_error_as_of_every_call():
    async def handler(request, context):
        await context.abort(*to_status(NotFoundError("no such queue")))

    async with tier_of("FetchMessages", handler) as channels:
        with pytest.raises(NotFoundError, match="no such queue"):
            await ask(channels, "FetchMessages", pb.FetchMessagesRequest(), 60)


async def test_a_service_that_has_stopped_is_unavailable():
    async def handler(request, context):
        return b""

    async with tier_of("FetchMessages", handler) as channels:
        assert await ask(channels, "FetchMessages", pb.FetchMessagesRequest(), 60) == b""
    with pytest.raises(UnavailableError):
        await ask(channels, "FetchMessages", pb.FetchMessagesRequest(), 60)
