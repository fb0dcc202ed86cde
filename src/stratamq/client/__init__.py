"""The client of a StrataMQ broker, synchronous and asyncio.

from stratamq.client import connect

with connect("./stratamq-data") as client:
    client.send("flights", b"UA1545", tag="EWR", keys=["N14228"])
    for message in client.consume("flights"):
        print(message.queue_offset, message.body)
"""

from stratamq.client.aio import AsyncClient, connect_async
from stratamq.client.aio_consumer import AsyncConsumer
from stratamq.client.aio_producer import AsyncProducer
from stratamq.client.consumer import Consumer
from stratamq.client.consuming import EARLIEST, LATEST, AtTime
from stratamq.client.delivery import AsyncDelivery, Delivery
from stratamq.client.intake import ProducerSettings
from stratamq.client.operations import Found, Pulled
from stratamq.client.producer import Producer
from stratamq.client.received import ReceivedMessage
from stratamq.client.replication_state import (
    Demotion,
    FollowingProgress,
    PeerView,
    Promotion,
    Removal,
    ReplicationState,
    SlaveProgress,
)
from stratamq.client.sync import Client, connect
from stratamq.client.values import (
    CleaningLook,
    CleaningStep,
    DamagedStretch,
    GroupQueue,
    JanitorState,
    LogShare,
    LogState,
    Message,
    PullStatus,
    Queue,
    ReplicaState,
    Retention,
    Role,
    ScrubState,
    SendResult,
    SendStatus,
    TimeBoundary,
    Topic,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AtTime",
    "CleaningLook",
    "CleaningStep",
    "Client",
    "Consumer",
    "DamagedStretch",
    "Delivery",
    "Demotion",
    "FollowingProgress",
    "Found",
    "GroupQueue",
    "JanitorState",
    "LogShare",
    "LogState",
    "Message",
    "PeerView",
    "Producer",
    "ProducerSettings",
    "Promotion",
    "PullStatus",
    "Pulled",
    "Queue",
    "ReceivedMessage",
    "Removal",
    "ReplicaState",
    "ReplicationState",
    "Retention",
    "Role",
    "ScrubState",
    "SendResult",
    "SendStatus",
    "SlaveProgress",
    "TimeBoundary",
    "Topic",
    "connect",
    "connect_async",
]
