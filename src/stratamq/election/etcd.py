"""An election in etcd, over its v3 API. Reads are linearizable."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from stratamq.api.v1 import etcd_pb2 as pb
from stratamq.election.store import ABSENT, Snapshot
from stratamq.errors import UnavailableError
from stratamq.formats.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)

_MOD_REVISION = 2
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_PAUSE_S = 0.1
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
"""A new channel is a new connection."""


class EtcdStore:
    """`endpoints`: HOST:PORT of the members of etcd, any of which may be away. `key`: of the value.
    A call ends within `timeout_s`."""

    def __init__(self, endpoints: Sequence[str], key: str, timeout_s: float) -> None:
        self._key = key.encode()
        self._timeout_s = timeout_s
        self._names = list(endpoints)
        self._channels = {one: _connect(one) for one in endpoints}
        self._closing: set[asyncio.Task[None]] = set()

    async def read(self) -> Snapshot:
        """UnavailableError; CorruptRecordError."""
        request = pb.EtcdRangeRequest(key=self._key)
        found = await self._call("Range", request, pb.EtcdRangeResponse, changes=False)
        if not found.kvs:
            return Snapshot(None, ABSENT)
        one = found.kvs[0]
        return Snapshot(decode_election_state(one.value), str(one.mod_revision))

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        """UnavailableError: not known whether it was done."""
        compare = pb.EtcdCompare(
            target=_MOD_REVISION, key=self._key, mod_revision=int(revision or 0)
        )
        put = pb.EtcdPutRequest(key=self._key, value=encode_election_state(state))
        request = pb.EtcdTxnRequest(compare=[compare], success=[pb.EtcdRequest(request_put=put)])
        done = await self._call("Txn", request, pb.EtcdTxnResponse, changes=True)
        return str(done.header.revision) if done.succeeded else None

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        await asyncio.gather(*self._closing)

    async def _call(self, method: str, request: Any, response: Any, *, changes: bool) -> Any:
        """From whichever member answers. What may have been done is not asked for again elsewhere:
        a swap that was done would then seem lost to another."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        problem = ""
        while (left := deadline - loop.time()) > 0:
            name = self._names[0]
            share = left if changes or len(self._names) == 1 else max(left / 2, _PAUSE_S)
            call = self._channels[name].unary_unary(
                f"/etcdserverpb.KV/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,
            )
            try:
                return await call(request, timeout=min(left, share), wait_for_ready=False)
            except grpc.aio.AioRpcError as error:
                problem = f"{name}: {error.details() or error.code().name}"
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._connect_anew(name)
                perhaps_done = changes and not _never_sent(error)
                if perhaps_done or error.code() not in _RETRIED:
                    break
            # The next one first, from now on.
            self._names.append(self._names.pop(0))
            await asyncio.sleep(min(_PAUSE_S, max(0.0, deadline - loop.time())))
        raise UnavailableError(f"the election store does not answer: {problem}")

    def _connect_anew(self, name: str) -> None:
        """A connection whose other end, or whose own address, is gone without a word answers no
        more, and is not given up by the kernel for a quarter of an hour. Other calls on it end."""
        silent, self._channels[name] = self._channels[name], _connect(name)
        closing = asyncio.create_task(silent.close(self._timeout_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _connect(endpoint: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)


def _never_sent(error: grpc.aio.AioRpcError) -> bool:
    """No connection came about."""
    said = (error.details() or "").lower()
    return error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in said
