"""What a gateway asks the delivery service of clients of RocketMQ's classic protocol: which consume
at the broker's other gateways, and which have the locks of queues. What gateways ask each other's
clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import grpc

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.api.v1 import gateway_pb2
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.asking import ask
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.explaining import stream_error, write
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import message_of, value_of
from stratamq.rpc.rooms import DELIVERY
from stratamq.service.queue_locks import Locked, QueueName

LOCKS_ANSWER_S = 0.8
"""A client waits for a second."""
BEAT_S = 10.0
"""A gateway that has nothing new says that, so that one that hangs is noticed."""
MAX_LOCKED = 1_000
"""One call is for no more queues."""
MAX_MEMBER_BYTES = 64 << 10
"""The subscriptions of one that says more are known at its gateway alone."""


@dataclass(frozen=True, slots=True)
class ClassicSubscription:
    topic: str
    expression: str
    kind: str
    version: int


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A consumer's heartbeat, as far as other gateways have to know it."""

    address: str
    language: str
    version: int
    consume_type: str
    message_model: str
    consume_from_where: str
    since_ms: int
    subscriptions: tuple[ClassicSubscription, ...] = ()


class MemberChange(NamedTuple):
    gateway: int
    group: str
    client_id: str
    member: ClassicMember | None
    """None: it has left."""


class SharedMembers:
    """What the gateways of a broker tell each other, on one of them. Opened by the first `read`'s
    answer, which is empty."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.told_all = False
        """All members that were there at first have been read."""

    @classmethod
    async def begin(cls, channels: Channels) -> "SharedMembers":
        """UnavailableError."""
        return cls(await channels.open_stream(METHODS["ShareMembers"]))

    async def say(self, changes: Iterable[MemberChange]) -> None:
        """UnavailableError when it has ended; why, `read` says."""
        said = [
            pb.MemberChange(
                gateway=one.gateway,
                group=one.group,
                client_id=one.client_id,
                member=b"" if one.member is None else encoded(one.member),
            )
            for one in changes
        ]
        await write(self._call, pb.ShareMembersRequest(changes=said))

    async def read(self) -> list[MemberChange]:
        """What has changed elsewhere. StrataError: why the stream has ended."""
        try:
            response = await self._call.read()
        except grpc.RpcError as failure:
            raise stream_error(failure) from failure
        if response is grpc.aio.EOF:
            raise UnavailableError("the delivery service has ended the stream")
        self.told_all |= response.told_all
        return [
            MemberChange(
                one.gateway,
                one.group,
                one.client_id,
                member_of(pb.ClassicMember.FromString(one.member)) if one.member else None,
            )
            for one in response.changes
        ]

    def end(self) -> None:
        self._call.cancel()


def renew_after(channels: Channels, error: StrataError) -> None:
    """Look the service up again."""
    if isinstance(error, UnavailableError):
        channels.renew(DELIVERY)


async def lock_queues(
    channels: Channels,
    group: str,
    client_id: str,
    queues: Sequence[QueueName],
    *,
    kept: bool = False,
    unlock: bool = False,
) -> Locked:
    """What `QueueLocks` does, for all gateways. NotWritableError on a slave, UnavailableError."""
    granted, unknown = [], []
    for at in range(0, len(queues), MAX_LOCKED):
        request = pb.LockQueuesRequest(
            group=group,
            client_id=client_id,
            queues=[pb.LockedQueue(**one._asdict()) for one in queues[at : at + MAX_LOCKED]],
            kept=kept,
            unlock=unlock,
        )
        answer = await ask(channels, "LockQueues", request, LOCKS_ANSWER_S)
        granted += map(_queue_name, answer.queues)
        unknown += map(_queue_name, answer.unknown)
    return Locked(granted, unknown)


def _queue_name(one: pb.LockedQueue) -> QueueName:
    return QueueName(one.broker, one.topic, one.queue_id)


def member_of(said: pb.ClassicMember) -> ClassicMember:
    subscriptions = tuple(value_of(ClassicSubscription, one) for one in said.subscriptions)
    return value_of(ClassicMember, said, subscriptions=subscriptions)


def encoded(member: ClassicMember) -> bytes:
    subscriptions = [message_of(pb.ClassicSubscription, one) for one in member.subscriptions]
    said = message_of(pb.ClassicMember, member, subscriptions=subscriptions)
    if said.ByteSize() > MAX_MEMBER_BYTES:
        said.ClearField("subscriptions")
    return said.SerializeToString()


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """For clients at another gateway."""

    group: str
    """The consumers' one; "": the client is a producer."""
    client_id: str
    code: int
    fields: Mapping[str, str]
    body: bytes
    body_with_lists: bytes = b""
    """For clients in C++, if it is another one."""
    tells_all: bool = False
    """All consumers of the group are told, and none answers."""


class ClientAnswer(NamedTuple):
    code: int
    fields: Mapping[str, str] = {}
    body: bytes = b""
    remark: str = ""


async def ask_clients(
    channels: Channels, gateway: str, request: ClientRequest, timeout_s: float
) -> ClientAnswer:
    """`gateway`: by the name of its run file. NotFoundError: the client is not connected to it.
    TimeoutError: it hangs. UnavailableError."""
    message = gateway_pb2.AskClientsRequest(**asdict(request))
    try:
        said = await ask(channels, "AskClients", message, timeout_s, gateway)
    except UnavailableError as error:
        if error.fields.get("status") == "DEADLINE_EXCEEDED":
            raise TimeoutError from error
        raise
    return ClientAnswer(said.code, dict(said.fields), said.body, said.remark)
