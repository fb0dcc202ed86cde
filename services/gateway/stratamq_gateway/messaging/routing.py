"""Where clients find queues, and that they are there: QueryRoute, QueryAssignment, Heartbeat,
NotifyClientTermination. `spec/gateway.md` 3.1, 3.2, 3.10, 3.11."""

from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic
from stratamq.rpc.address import split_address
from stratamq_gateway.brokers import topics_named
from stratamq_gateway.messaging.messages import group_name, taken_types, topic_name
from stratamq_gateway.messaging.sessions import ClientSession, Sessions
from stratamq_gateway.messaging.statuses import RefusedError, status

_PERMISSIONS = {6: pb.READ_WRITE, 4: pb.READ, 2: pb.WRITE}
READ = 4
MAX_ENDPOINTS_BYTES = 4_096
"""Every queue of a route repeats the address that the client has used."""


class NamedTopic(NamedTuple):
    topic: str


class NamedGroup(NamedTuple):
    group: str


class Door(NamedTuple):
    """The broker, as routes name it."""

    broker: str
    advertised: str
    """Where clients reach this gateway; empty: where they say that they have reached it."""
    listening: str
    """For clients that do not say it."""

    def named(self, used: pb.Endpoints) -> pb.Broker:
        """RefusedError."""
        if used.ByteSize() > MAX_ENDPOINTS_BYTES:
            raise RefusedError(pb.ILLEGAL_ACCESS_POINT, "the endpoints are too long")
        endpoints = pb.Endpoints()
        if not self.advertised and used.addresses:
            endpoints.CopyFrom(used)
            if not endpoints.scheme:
                endpoints.scheme = pb.DOMAIN_NAME
        else:
            host, port = split_address(self.advertised or self.listening)
            endpoints.scheme = pb.DOMAIN_NAME
            endpoints.addresses.add(host=host, port=port)
        return pb.Broker(name=self.broker, id=0, endpoints=endpoints)


class QueryRoute:
    use_case = "ListTopics"
    response = pb.QueryRouteResponse

    def __init__(self, door: Door) -> None:
        self._door = door

    def asked(self, request: pb.QueryRouteRequest) -> NamedTopic:
        return NamedTopic(topic_name(request.topic))

    async def answer(
        self, session: ClientSession, request: pb.QueryRouteRequest, asked: NamedTopic
    ) -> pb.QueryRouteResponse:
        topic = await existing(session, asked.topic)
        broker = self._door.named(request.endpoints)
        count = max(topic.read_queue_count, topic.write_queue_count, 1)
        queues = [
            pb.MessageQueue(
                topic=request.topic,
                id=queue_id,
                permission=_PERMISSIONS.get(topic.permission & 6, pb.NONE),
                broker=broker,
                accept_message_types=taken_types(topic.message_type),
            )
            for queue_id in range(count)
        ]
        return pb.QueryRouteResponse(status=status(pb.OK), message_queues=queues)


class QueryAssignment:
    use_case = "ListTopics"
    response = pb.QueryAssignmentResponse

    def __init__(self, door: Door) -> None:
        self._door = door

    def asked(self, request: pb.QueryAssignmentRequest) -> NamedTopic:
        group_name(request.group)
        return NamedTopic(topic_name(request.topic))

    async def answer(
        self, session: ClientSession, request: pb.QueryAssignmentRequest, asked: NamedTopic
    ) -> pb.QueryAssignmentResponse:
        """All queues as one: a receive looks into each."""
        topic = await existing(session, asked.topic)
        if not topic.permission & READ or not topic.read_queue_count:
            raise RefusedError(pb.FORBIDDEN, f"topic {topic.name} has no readable queue")
        queue = pb.MessageQueue(
            topic=request.topic,
            id=-1,
            permission=_PERMISSIONS.get(topic.permission & 6, pb.NONE),
            broker=self._door.named(request.endpoints),
            accept_message_types=taken_types(topic.message_type),
        )
        return pb.QueryAssignmentResponse(
            status=status(pb.OK), assignments=[pb.Assignment(message_queue=queue)]
        )


class HeartbeatCall:
    use_case = "GetStatus"
    response = pb.HeartbeatResponse

    def asked(self, request: pb.HeartbeatRequest) -> NamedGroup:
        consumes = request.client_type in (pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER, pb.PULL_CONSUMER)
        return NamedGroup(group_name(request.group) if consumes else "")

    async def answer(
        self, session: ClientSession, request: pb.HeartbeatRequest, asked: NamedGroup
    ) -> pb.HeartbeatResponse:
        """It is a client's word that it lives; what it holds with a lease it keeps. A push consumer
        may hold what another gateway, or this one before a restart, has given it."""
        pushed = asked.group and request.client_type == pb.PUSH_CONSUMER
        if pushed or asked.group in session.leased_of:
            await session.renew(asked.group)
        return pb.HeartbeatResponse(status=status(pb.OK))


class NotifyClientTermination:
    use_case = "GetStatus"
    response = pb.NotifyClientTerminationResponse

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def asked(self, request: pb.NotifyClientTerminationRequest) -> NamedGroup:
        return NamedGroup(request.group.name)

    async def answer(
        self, session: ClientSession, request: pb.NotifyClientTerminationRequest, asked: NamedGroup
    ) -> pb.NotifyClientTerminationResponse:
        await session.end_lease()
        self._sessions.forget(session)
        return pb.NotifyClientTerminationResponse(status=status(pb.OK))


async def existing(session: ClientSession, name: str) -> Topic:
    found = await topics_named(session.client, name)
    if not found:
        raise RefusedError(pb.TOPIC_NOT_FOUND, f"there is no topic {name}")
    return found[0]
