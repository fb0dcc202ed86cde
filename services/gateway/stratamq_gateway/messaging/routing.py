"""Where clients find queues, and that they are there: QueryRoute, QueryAssignment, Heartbeat,
NotifyClientTermination. `spec/gateway.md` 3.1, 3.2, 3.10, 3.11.
SyncLiteSubscription is refused."""

from typing import NamedTuple

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client import Topic
from stratamq.formats.topics import PERMISSION_READ
from stratamq.rpc.address import split_address
from stratamq_gateway.brokers import Brokers, RoutedBroker
from stratamq_gateway.messaging.messages import NO_LITE_TOPICS, group_name, taken_types, topic_name
from stratamq_gateway.messaging.sessions import ClientSession, Sessions
from stratamq_gateway.messaging.statuses import RefusedError, status

_PERMISSIONS = {6: pb.READ_WRITE, 4: pb.READ, 2: pb.WRITE}
MAX_ENDPOINTS_BYTES = 4_096
"""Every queue of a route repeats the address that the client has used."""


class NamedTopic(NamedTuple):
    topic: str


class NamedGroup(NamedTuple):
    group: str


class Door(NamedTuple):
    """Where clients reach this gateway."""

    advertised: str
    """Empty: where they say that they have reached it."""
    listening: str
    """For clients that do not say it."""

    def of(self, broker: RoutedBroker, used: pb.Endpoints) -> pb.Broker:
        """A broker as routes name it. RefusedError."""
        if used.ByteSize() > MAX_ENDPOINTS_BYTES:
            raise RefusedError(pb.ILLEGAL_ACCESS_POINT, "the endpoints are too long")
        endpoints = pb.Endpoints()
        address = broker.grpc or self.advertised
        if not address and used.addresses:
            endpoints.CopyFrom(used)
            if not endpoints.scheme:
                endpoints.scheme = pb.DOMAIN_NAME
        else:
            host, port = split_address(address or self.listening)
            endpoints.scheme = pb.DOMAIN_NAME
            endpoints.addresses.add(host=host, port=port)
        return pb.Broker(name=broker.name, id=0, endpoints=endpoints)


class QueryRoute:
    use_case = "ListTopics"
    response = pb.QueryRouteResponse

    def __init__(self, door: Door, brokers: Brokers) -> None:
        self._door = door
        self._brokers = brokers

    def asked(self, request: pb.QueryRouteRequest) -> NamedTopic:
        return NamedTopic(topic_name(request.topic))

    async def answer(
        self, session: ClientSession, request: pb.QueryRouteRequest, asked: NamedTopic
    ) -> pb.QueryRouteResponse:
        queues = []
        for broker, topic in await reached_brokers(self._brokers, session, asked.topic):
            named = self._door.of(broker, request.endpoints)
            for queue_id in range(max(topic.read_queue_count, topic.write_queue_count, 1)):
                queues.append(_queue(request.topic, queue_id, topic, named))
        return pb.QueryRouteResponse(status=status(pb.OK), message_queues=queues)


class QueryAssignment:
    use_case = "ListTopics"
    response = pb.QueryAssignmentResponse

    def __init__(self, door: Door, brokers: Brokers) -> None:
        self._door = door
        self._brokers = brokers

    def asked(self, request: pb.QueryAssignmentRequest) -> NamedTopic:
        group_name(request.group)
        return NamedTopic(topic_name(request.topic))

    async def answer(
        self, session: ClientSession, request: pb.QueryAssignmentRequest, asked: NamedTopic
    ) -> pb.QueryAssignmentResponse:
        """All queues of a broker as one: a receive looks into each."""
        assignments = [
            pb.Assignment(
                message_queue=_queue(
                    request.topic, -1, topic, self._door.of(broker, request.endpoints)
                )
            )
            for broker, topic in await reached_brokers(self._brokers, session, asked.topic)
            if topic.permission & PERMISSION_READ and topic.read_queue_count
        ]
        if not assignments:
            raise RefusedError(pb.FORBIDDEN, f"topic {asked.topic} has no readable queue")
        return pb.QueryAssignmentResponse(status=status(pb.OK), assignments=assignments)


def _queue(name: pb.Resource, queue_id: int, topic: Topic, broker: pb.Broker) -> pb.MessageQueue:
    return pb.MessageQueue(
        topic=name,
        id=queue_id,
        permission=_PERMISSIONS.get(topic.permission & 6, pb.NONE),
        broker=broker,
        accept_message_types=taken_types(topic.message_type),
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


class SyncLiteSubscription:
    """Decision 101."""

    use_case = "GetStatus"
    response = pb.SyncLiteSubscriptionResponse

    def asked(self, request: pb.SyncLiteSubscriptionRequest) -> NamedGroup:
        return NamedGroup(group_name(request.group))

    async def answer(
        self, session: ClientSession, request: pb.SyncLiteSubscriptionRequest, asked: NamedGroup
    ) -> pb.SyncLiteSubscriptionResponse:
        return pb.SyncLiteSubscriptionResponse(status=status(pb.NOT_IMPLEMENTED, NO_LITE_TOPICS))


async def reached_brokers(
    brokers: Brokers, session: ClientSession, name: str
) -> list[tuple[RoutedBroker, Topic]]:
    """The brokers that have a topic, and a gateway for clients of this protocol."""
    found = await brokers.topics(session.client, name)
    reached = [(one, topics[0]) for one, topics in found if topics and (one.grpc or not one.client)]
    if not reached:
        raise RefusedError(pb.TOPIC_NOT_FOUND, f"there is no topic {name}")
    return reached
