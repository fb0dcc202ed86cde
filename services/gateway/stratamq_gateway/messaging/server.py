"""The gRPC server of `apache.rocketmq.v2.MessagingService`, on an address of its own.

Each method has a handler with the permission rule of the use case that it stands for. An error is
answered as RocketMQ does: the call is OK, and its response has the status.
"""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from functools import partial
from logging import getLogger
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import AsyncClient
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.files.port import Clock
from stratamq.rpc.address import join_address
from stratamq.rpc.permission_file import checked_name
from stratamq.rpc.permissions import KNOWN, RULES
from stratamq.rpc.request_ids import begin
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller
from stratamq.service.client_limits import ClientLimits
from stratamq.service.entrance import Call, Entrance
from stratamq.service.front import Front
from stratamq.service.grpc_callers import DirectCallers
from stratamq.service.recorder import Recorder
from stratamq.service.sockets import listen as listen_at
from stratamq.service.tls import ServerTls
from stratamq_gateway.brokers import BrokerName, Brokers
from stratamq_gateway.checks import Checks
from stratamq_gateway.messaging.acknowledging import AckMessage
from stratamq_gateway.messaging.asgi import GrpcMethod
from stratamq_gateway.messaging.asgi_calls import AsgiCall
from stratamq_gateway.messaging.http2_servers import WHO, GrpcServer, MakeServer
from stratamq_gateway.messaging.messages import MAX_BODY_BYTES, MAX_PROPERTY_BYTES
from stratamq_gateway.messaging.own_api import OwnApi
from stratamq_gateway.messaging.pulling import (
    GetOffset,
    PullMessage,
    QueryOffset,
    UpdateOffset,
)
from stratamq_gateway.messaging.recalling import RecallMessage
from stratamq_gateway.messaging.receiving import (
    ChangeInvisibleDuration,
    ForwardMessageToDeadLetterQueue,
    ReceiveMessage,
)
from stratamq_gateway.messaging.routing import (
    Door,
    HeartbeatCall,
    NotifyClientTermination,
    QueryAssignment,
    QueryRoute,
    SyncLiteSubscription,
)
from stratamq_gateway.messaging.sending import EndTransactionCall, SendMessage
from stratamq_gateway.messaging.sessions import ClientSession, Sessions
from stratamq_gateway.messaging.shared_port import ALPN, SharedPort
from stratamq_gateway.messaging.statuses import RefusedError, code_of, status
from stratamq_gateway.messaging.telemetry import ask, telemetry
from stratamq_gateway.messaging.web import Web
from stratamq_gateway.metrics import FAILED, requests_of

log = getLogger(__name__)

Read = Callable[[bytes], Any]
SERVICE = pb.DESCRIPTOR.services_by_name["MessagingService"]
CLIENT_ID, AUTHORIZATION, DATE_TIME = "x-mq-client-id", "authorization", "x-mq-date-time"
MAX_MESSAGE_BYTES = 2 * (MAX_BODY_BYTES + MAX_PROPERTY_BYTES)
"""So that a body that is too large is told so."""
INNER = "127.0.0.1:0"
_SIGNED = re.compile(r"MQv2-HMAC-SHA1 +Credential=([^/,]*).*Signature=([0-9a-fA-F]+)")


class SignedCallers(DirectCallers):
    """Callers that sign the time of their call, have a token, or have a certificate."""

    shared: SharedPort | None = None
    """Through which all have come; None: they are connected to gRPC's own port."""

    def origin(self, context: Any) -> Caller:
        origin = super().origin(context)
        return origin if self.shared is None else self.shared.caller(origin.port)

    def certificate(self, context: Any) -> str:
        """The name in the one that was shown to the shared port."""
        return "" if self.shared is None else self.shared.certificate(super().origin(context).port)

    def of_request(self, scope: Mapping[str, Any]) -> Caller:
        """Who asks for a page. A certificate whose name can be no user's counts as none."""
        context = AsgiCall({"client": scope.get("client"), "headers": ()})
        origin = self.origin(context)
        with suppress(InvalidRequestError):
            return origin._replace(name=checked_name(self.certificate(context)))
        return origin

    def identify(self, context: Any, method: str) -> Caller:
        if self.access is None:
            return self.origin(context)
        found = _SIGNED.match(_metadata(context, AUTHORIZATION))
        if found is None or not found[1]:
            certificate = self.certificate(context)
            if certificate:
                return self.access.identify(self.origin(context), certificate)
            return super().identify(context, method)
        origin = self.origin(context)
        try:
            signature = base64.b64encode(binascii.unhexlify(found[2])).decode()
        except binascii.Error:
            signature = ""
        content = _metadata(context, DATE_TIME).encode()
        return self.access.by_signature(origin, found[1], signature, content)


class MessagingServer:
    """Belongs to the event loop."""

    def __init__(
        self,
        front: Front,
        own: AsyncClient,
        clock: Clock,
        door: Door,
        brokers: Brokers,
        where: BrokerName,
        clear: MakeServer,
        access: AccessControl | None,
        limits: ClientLimits | None,
        recorder: Recorder | None,
        tls: ServerTls | None,
    ) -> None:
        self.address = ""
        self._door = door
        self.sessions = sessions = Sessions(front, clock)
        self._clock = clock
        self._checks = Checks(own, sessions.producers, partial(ask, sessions))
        self._callers = SignedCallers(access, encrypted=tls is not None)
        self._tls = tls
        entrance = partial(Entrance, access, limits, recorder)
        methods = {
            name: GrpcMethod(
                partial(
                    self._unary, entrance(name, RULES[handler.use_case]), handler, _reader(name)
                )
            )
            for name, handler in handlers_of(door, brokers, sessions, where).items()
        }
        for name, stream in streams_of(clock, where).items():
            streamed = entrance(name, RULES[stream.use_case], gives_stream=True)
            methods[name] = GrpcMethod(
                partial(self._stream, streamed, stream, _reader(name)), gives_stream=True
            )
        told = entrance("Telemetry", KNOWN, takes_stream=True, gives_stream=True)
        methods["Telemetry"] = GrpcMethod(
            partial(self._telemetry, told), takes_stream=True, gives_stream=True
        )
        paths = {f"/{SERVICE.full_name}/{name}": one for name, one in methods.items()}
        own = OwnApi(front, self._callers, entrance, self.advertised, (SERVICE.full_name,))
        paths |= own.methods()
        self._grpc = GrpcServer(paths, MAX_MESSAGE_BYTES)
        web = Web(front.root, self._callers.of_request)
        self._clear = clear(paths, MAX_MESSAGE_BYTES, web)

    async def start(
        self, address: str, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """With TLS clients in clear are served, too, unless they need certificates.
        ConfigurationError."""
        if self._tls is None:
            self.address = self._clear.listen(address, None)
        elif self._tls.requires_client_certificates:
            self.address = self._grpc.listen(address, self._tls)
        else:
            listening = listen_at(address, WHO)
            self.address = join_address(*listening.getsockname()[:2])
            inner = self._grpc.listen(INNER, self._tls), self._clear.listen(INNER, None)
            web = self._clear.takes_requests
            contexts = self._tls.contexts(require_client_certificates=False, alpn=ALPN)
            self._callers.shared = shared = SharedPort(*inner, contexts if web else None)
            spawn(shared.serve(listening))
        for server in (self._grpc, self._clear):
            await server.start(spawn)

    def advertised(self) -> str:
        """ "": there is no such port."""
        return self._door.advertised or self.address

    def tick(self) -> None:
        """To be called every second."""
        self.sessions.expire()
        self._checks.look()

    async def close(self) -> None:
        """Long polls and Telemetry streams end at once: clients call again."""
        await self._checks.close()
        if self._callers.shared is not None:
            self._callers.shared.close()
        for server in (self._grpc, self._clear):
            await server.close()
        await self.sessions.close()

    def _enter(self, entrance: Entrance, context: Any) -> Call:
        requests_of(entrance.method).inc()
        identify = partial(self._callers.identify, context, entrance.method)
        return entrance.enter(identify, begin(context))

    def _session(self, call: Call, context: Any) -> ClientSession:
        return self.sessions.of(_metadata(context, CLIENT_ID), call.caller)

    async def _unary(
        self, entrance: Entrance, handler: Any, read: Read, data: bytes, context: Any
    ) -> Any:
        try:
            with self._enter(entrance, context) as call:
                request = read(data)
                asked = handler.asked(request)
                if entrance.access is not None:
                    await call.require(asked)
                call.require_room()
                session = self._session(call, context)
                with session:
                    response = await handler.answer(session, request, asked)
                call.answer_alone(response, context if isinstance(context, AsgiCall) else None)
                return response
        except StrataError as error:
            return handler.response(status=self._failed(entrance, error))
        except Exception:
            log.exception("a call failed", extra={"method": entrance.method})
            return handler.response(status=self._broken(entrance))

    async def _stream(
        self, entrance: Entrance, handler: Any, read: Read, data: bytes, context: Any
    ) -> AsyncIterator[Any]:
        try:
            with self._enter(entrance, context) as call:
                request = read(data)
                asked = handler.asked(request)
                await call.require(asked)
                call.require_room()
                session = self._session(call, context)
                answers = handler.answers(session, request, asked, context.time_remaining())
                with session:
                    async with aclosing(answers):
                        async for answer in answers:
                            size = call.hold(answer)
                            yield answer
                            call.given(size)
        except StrataError as error:
            for answer in handler.refused(self._failed(entrance, error)):
                yield answer
        except Exception:
            log.exception("a call failed", extra={"method": entrance.method})
            for answer in handler.refused(self._broken(entrance)):
                yield answer

    async def _telemetry(
        self, entrance: Entrance, requests: Any, context: Any
    ) -> AsyncIterator[pb.TelemetryCommand]:
        """The one method whose errors are gRPC's."""
        try:
            with self._enter(entrance, context) as call:
                await call.require(None)
                if self.sessions.has_left(_metadata(context, CLIENT_ID), call.caller):
                    return
                session = self._session(call, context)
                commands = telemetry(session, requests, self._clock)
                with session:
                    async with aclosing(commands):  # type: ignore[type-var]
                        async for command in commands:
                            yield command
        except StrataError as error:
            problem = self._failed(entrance, error)
            bad = 40000 <= problem.code < 40100
            code = grpc.StatusCode.INVALID_ARGUMENT if bad else grpc.StatusCode.INTERNAL
            await context.abort(code, problem.message)
        except Exception:
            log.exception("a call failed", extra={"method": entrance.method})
            await context.abort(grpc.StatusCode.INTERNAL, self._broken(entrance).message)

    def _failed(self, entrance: Entrance, error: StrataError) -> pb.Status:
        code = code_of(error)
        if code >= pb.INTERNAL_ERROR:
            FAILED.labels(entrance.method).inc()
        return status(code, str(error))

    def _broken(self, entrance: Entrance) -> pb.Status:
        FAILED.labels(entrance.method).inc()
        return status(pb.INTERNAL_ERROR, "internal error: see the gateway's log")


def handlers_of(
    door: Door, brokers: Brokers, sessions: Sessions, where: BrokerName
) -> Mapping[str, Any]:
    """Those of methods with one answer. What has none, gRPC says is not implemented."""
    return {
        "QueryRoute": QueryRoute(door, brokers),
        "QueryAssignment": QueryAssignment(door, brokers),
        "Heartbeat": HeartbeatCall(),
        "NotifyClientTermination": NotifyClientTermination(sessions),
        "SendMessage": SendMessage(where),
        "EndTransaction": EndTransactionCall(),
        "AckMessage": AckMessage(),
        "ChangeInvisibleDuration": ChangeInvisibleDuration(),
        "ForwardMessageToDeadLetterQueue": ForwardMessageToDeadLetterQueue(),
        "RecallMessage": RecallMessage(where.broker, brokers),
        "UpdateOffset": UpdateOffset(where.broker),
        "GetOffset": GetOffset(where.broker),
        "QueryOffset": QueryOffset(where.broker),
        "SyncLiteSubscription": SyncLiteSubscription(),
    }


def streams_of(clock: Clock, where: BrokerName) -> Mapping[str, Any]:
    """Those of methods that answer with a stream."""
    return {"ReceiveMessage": ReceiveMessage(clock), "PullMessage": PullMessage(where.broker)}


def _metadata(context: Any, name: str) -> str:
    """ "": there is none of this name."""
    if isinstance(context, AsgiCall):
        return context.headers.get(name.encode(), b"").decode("latin-1")
    return str(dict(context.invocation_metadata() or ()).get(name, ""))


def _reader(method: str) -> Read:
    kind = getattr(pb, SERVICE.methods_by_name[method].input_type.name)

    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise RefusedError(pb.BAD_REQUEST, f"a request that cannot be read: {error}") from error

    return read
