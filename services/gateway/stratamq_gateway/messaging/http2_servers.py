"""What serves gRPC's calls on a port: gRPC's own server, with TLS or without, or h2corn, in clear.

h2corn reads and writes HTTP/2 outside of Python, which saves most of what a small call costs
(decision 092). It is there with the extra `gateway`. It cannot take new certificates while it runs.
"""

import asyncio
import importlib.util
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import grpc

from stratamq.rpc.address import join_address
from stratamq.service import notify
from stratamq.service.listening import channel_options, listen
from stratamq.service.sockets import listen as listen_at
from stratamq.service.tls import ServerTls
from stratamq_gateway.messaging.asgi import AsgiApp, GrpcApp, GrpcMethod

WHO = "the gateway"
STREAMS = 1_000
"""The limit of calls at a time of one connection: held ones, and very many small ones."""
HEADER_BYTES = 16 << 10
CLOSE_S = 1.0

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Http2Server(Protocol):
    def listen(self, address: str, tls: ServerTls | None) -> str:
        """Return the address that is bound. ConfigurationError."""

    async def start(self, spawn: Spawn) -> None:
        """Serve from now on, if it listens."""

    async def close(self) -> None:
        """End all calls at once: their clients see UNAVAILABLE."""

    @property
    def takes_requests(self) -> bool:
        """Whether it serves what is no call, over HTTP/1.1 as well."""


MakeServer = Callable[[Mapping[str, GrpcMethod], int, AsgiApp | None], Http2Server]
"""Given the methods by their paths, the size of the largest request in bytes, and who gets requests
that are no calls, where the server takes them."""


class GrpcServer:
    takes_requests = False

    def __init__(
        self, methods: Mapping[str, GrpcMethod], max_bytes: int, web: AsgiApp | None = None
    ) -> None:
        self._server = grpc.aio.server(options=channel_options(max_bytes))
        self._listens = False
        handlers = {path: _handler(one) for path, one in methods.items()}
        self._server.add_generic_rpc_handlers((_Handlers(handlers),))

    def listen(self, address: str, tls: ServerTls | None) -> str:
        self._listens = True
        return listen(self._server, address, WHO, tls)

    async def start(self, spawn: Spawn) -> None:
        if self._listens:
            await self._server.start()

    async def close(self) -> None:
        await self._server.stop(0)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> None:
        self._handlers = handlers

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(details.method)


def _handler(method: GrpcMethod) -> grpc.RpcMethodHandler:
    kind = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.takes_stream, method.gives_stream]
    return kind(method.serve, response_serializer=method.dump)


class H2cornServer:
    def __init__(
        self,
        log_format: str,
        serves_web: bool,
        methods: Mapping[str, GrpcMethod],
        max_bytes: int,
        web: AsgiApp | None = None,
    ) -> None:
        web = web if serves_web else None
        self._log_format = log_format
        self.takes_requests = web is not None
        self._app = GrpcApp(methods, max_bytes, web)
        self._listening: socket.socket | None = None
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    def listen(self, address: str, tls: ServerTls | None) -> str:
        assert tls is None
        self._listening = listen_at(address, WHO)
        return join_address(*self._listening.getsockname()[:2])

    async def start(self, spawn: Spawn) -> None:
        if self._listening is None:
            return
        import h2corn
        from h2corn._lib import prepare_tls

        notify.withhold()  # h2corn would report that all of the broker is ready

        config = h2corn.Config(
            grpc=True,
            http1=self.takes_requests,
            proxy_headers=False,  # who calls is who has connected, whatever a client says
            proxy_protocol="off",
            lifespan="off",
            runtime_threads=1,  # more do not help the one thread that runs the calls
            access_log=False,
            log_format=self._log_format,
            date_header=False,
            max_concurrent_streams=STREAMS,
            h2_max_header_list_size=HEADER_BYTES,
            h2_max_header_block_size=HEADER_BYTES,
            limit_request_head_size=HEADER_BYTES,
            timeout_graceful_shutdown=CLOSE_S,
        )
        self._server = h2corn.Server(self._app, config)
        # What its own supervisor calls: `serve` writes lines of its own to the service's output.
        serving = self._server._serve_worker_fds(
            [os.dup(self._listening.fileno())], prepared_tls=prepare_tls(config)
        )
        self._serving = asyncio.create_task(serving)
        await self._server.wait_started()
        spawn(self._watch())

    async def _watch(self) -> None:
        """What ends it unasked ends the service."""
        assert self._serving is not None
        await asyncio.shield(self._serving)

    async def close(self) -> None:
        await self._app.close()
        if self._serving is not None:
            self._server.shutdown()
            await self._serving
        if self._listening is not None:
            self._listening.close()


def has_h2corn() -> bool:
    return importlib.util.find_spec("h2corn") is not None


def clear_server(name: str, log_format: str, *, serves_web: bool) -> MakeServer:
    """By `gateway.grpc_server`, `gateway.log_format` and `gateway.console`."""
    if name == "grpcio" or not has_h2corn():
        return GrpcServer
    return partial(H2cornServer, log_format, serves_web)
