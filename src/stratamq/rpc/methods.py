"""Every method of the services as one value: where it lives, its path, its codecs, its rule.

Messages with large fields are framed by hand (`rpc.framing`): their codec here is None, and callers
of the method frame and unframe them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from stratamq.api.v1 import broker_pb2
from stratamq.rpc.framing import (
    APPEND_DATA_REQUEST,
    APPEND_STREAM_REQUEST,
    FETCH_MESSAGES_RESPONSE,
    PULL_RESPONSE,
    PULL_STREAM_RESPONSE,
    READ_RANGE_RESPONSE,
)
from stratamq.rpc.permissions import KNOWN, OPERATE, RULES, MethodRule
from stratamq.rpc.rooms import REGISTER, RegisteredService

HAND_FRAMED = {
    codec.message_type.DESCRIPTOR.full_name
    for codec in (
        APPEND_DATA_REQUEST,
        APPEND_STREAM_REQUEST,
        FETCH_MESSAGES_RESPONSE,
        PULL_RESPONSE,
        PULL_STREAM_RESPONSE,
        READ_RANGE_RESPONSE,
    )
}
"""Full names of the messages that `rpc.framing` has."""


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """`kind` is the name of the channel's factory: `unary_unary`, `unary_stream`, …"""

    room: str
    path: str
    kind: str
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None
    request: Any = None
    """The class of its requests."""

    def on(self, channel: Any) -> Any:
        """The method's callable on a channel, synchronous or asyncio."""
        return getattr(channel, self.kind)(
            self.path, request_serializer=self.serialize, response_deserializer=self.deserialize
        )


def kind_of(method: MethodDescriptor) -> str:
    """The name of the channel's factory for a method of a proto: `unary_unary`, …"""
    kinds = {True: "stream", False: "unary"}
    return f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"


def service_of(room: str) -> ServiceDescriptor:
    """The proto of a service in the register."""
    one = REGISTER[room]
    return _module(one).DESCRIPTOR.services_by_name[one.proto]


def _module(one: RegisteredService) -> ModuleType:
    return import_module(f"stratamq.api.v1.{one.module}")


def _methods(room: str, module: Any, service: ServiceDescriptor) -> dict[str, Method]:
    methods = {}
    for described in service.methods:
        request = getattr(module, described.input_type.name)
        response = getattr(module, described.output_type.name)
        framed_request = described.input_type.full_name in HAND_FRAMED
        framed_response = described.output_type.full_name in HAND_FRAMED
        methods[described.name] = Method(
            room=room,
            path=f"/{service.full_name}/{described.name}",
            kind=kind_of(described),
            serialize=None if framed_request else request.SerializeToString,
            deserialize=None if framed_response else response.FromString,
            request=request,
        )
    return methods


METHODS = {
    name: method
    for one in REGISTER.values()
    for name, method in _methods(one.name, _module(one), service_of(one.name)).items()
}
"""By their name, which is unique among the services."""

BROKER_SERVICE = broker_pb2.DESCRIPTOR.services_by_name["BrokerService"]
DESCRIBE_BROKER = _methods("", broker_pb2, BROKER_SERVICE)["DescribeBroker"]
"""Every service has it."""

OPEN_SERVICES = ("grpc.health.v1.Health",)
"""Every client may ask whether the service serves: probes have no identity."""
_OF_ALL = ("grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection")
_BY_PATH = {METHODS[name].path: rule for name, rule in RULES.items() if name in METHODS}
_BY_PATH[DESCRIBE_BROKER.path] = KNOWN


def rule_of(path: str) -> MethodRule | None:
    """Return the rule of a full method name, `/package.Service/Method`. None: no authentication
    needed."""
    service = path.strip("/").partition("/")[0]
    if service in OPEN_SERVICES:
        return None
    return KNOWN if service in _OF_ALL else _BY_PATH.get(path, OPERATE)
