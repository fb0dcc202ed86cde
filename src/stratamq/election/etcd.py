"""An election in etcd, over its v3 API. Reads are linearizable.

Certificates that were replaced are used from the next call on; those that cannot be used are
reported, and the connections that there are stay.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc

from stratamq.api.v1 import etcd_pb2 as pb
from stratamq.election.store import ABSENT, StoredState
from stratamq.errors import ConfigurationError, UnavailableError
from stratamq.formats.election_state import (
    ElectionState,
    decode_election_state,
    encode_election_state,
)
from stratamq.rpc.credentials import Credentials

log = logging.getLogger(__name__)

_MOD_REVISION = 2
_RETRIED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_PAUSE_S = 0.1
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
"""A new channel is a new connection."""
_NO_TLS = (
    "it has not answered the TLS handshake: if it does without TLS, write etcd:// in agent.store, "
    "or start it with --cert-file and --key-file"
)
_SENTENCES = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not of an authority in {ca}, or has expired: "
    "set agent.etcd_cacert to the authority that made it",
    "BAD_SIGNATURE": "its certificate is not of an authority in {ca}: set agent.etcd_cacert to the "
    "authority that made it",
    "Hostname Verification Check failed": "its certificate is for other hosts: make one that names "
    "this host, or name a host of the certificate in agent.store",
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "Handshake read failed": _NO_TLS,
}
_ENDED = (
    "Unwrap failed",
    "Socket closed",
    "Connection reset",
    "Broken pipe",
    "CERTIFICATE_REQUIRED",
)
_CLEAR = (
    "it has closed the connection: if it asks for TLS, write etcds:// in agent.store and set "
    "agent.etcd_cacert"
)
_NOTHING_SHOWN = (
    "it has closed the connection: if it asks for a client certificate (--client-cert-auth), set "
    "agent.etcd_cert and agent.etcd_key"
)
_REFUSED = (
    "it has closed the connection: {certificate} has to be of the authority that etcd trusts "
    "(--trusted-ca-file), for clients, and not expired"
)


class EtcdStore:
    """`endpoints`: HOST:PORT of the members of etcd, any of which may be away. `key`: of the value.
    A call ends within `timeout_s`. `credentials` without TLS files: in clear. ConfigurationError
    when those that there are cannot be used."""

    def __init__(
        self, endpoints: Sequence[str], key: str, timeout_s: float, credentials: Credentials
    ) -> None:
        self._credentials = credentials
        self._unusable = ""
        """Why the TLS files are not used, if they are not."""
        self._key = key.encode()
        self._timeout_s = timeout_s
        self._names = list(endpoints)
        self._channels = {one: self._connect(one) for one in endpoints}
        self._closing: set[asyncio.Task[None]] = set()

    async def read(self) -> StoredState:
        """UnavailableError; CorruptRecordError."""
        request = pb.EtcdRangeRequest(key=self._key)
        found = await self._call("Range", request, pb.EtcdRangeResponse, changes=False)
        if not found.kvs:
            return StoredState(None, ABSENT)
        one = found.kvs[0]
        return StoredState(decode_election_state(one.value), str(one.mod_revision))

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
        self._read_replaced_files()
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
                problem = f"{name}: {self._explained(error)}"
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
        try:
            made = self._connect(name)
        except ConfigurationError as error:
            if str(error) != self._unusable:  # once, and not for each call
                self._unusable = str(error)
                reason = {"reason": self._unusable}
                log.error("TLS files for etcd rejected, open connections are kept", extra=reason)
            return
        self._unusable = ""
        silent, self._channels[name] = self._channels[name], made
        closing = asyncio.create_task(silent.close(self._timeout_s))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _read_replaced_files(self) -> None:
        if self._credentials.changed():
            for name in self._names:
                self._connect_anew(name)

    def _connect(self, endpoint: str) -> grpc.aio.Channel:
        return self._credentials.connect(grpc.aio, endpoint, _OPTIONS)

    def _explained(self, error: grpc.aio.AioRpcError) -> str:
        """What kept etcd from answering, and what to do about it where that is known."""
        said = error.details() or error.code().name
        tls = self._credentials.tls
        for fragment, sentence in _SENTENCES.items():
            if tls is not None and fragment in said:
                return f"{sentence.format(ca=tls.ca)} ({said})"
        if not any(fragment in said for fragment in _ENDED):
            return said
        if tls is None:
            return f"{_CLEAR} ({said})"
        if tls.certificate is None:
            return f"{_NOTHING_SHOWN} ({said})"
        return f"{_REFUSED.format(certificate=tls.certificate)} ({said})"


def _never_sent(error: grpc.aio.AioRpcError) -> bool:
    """No connection came about."""
    said = (error.details() or "").lower()
    return error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in said
