"""The client of a StrataMQ broker, synchronous and asyncio.

from stratamq.client import connect

with connect("./stratamq-data") as client:
    client.send("flights", b"UA1545", tag="EWR", keys=["N14228"])
    for message in client.consume("flights"):
        print(message.queue_offset, message.body)
"""

from stratamq.client._async.admin import AsyncAdminClient
from stratamq.client._async.client import AsyncClient
from stratamq.client._async.connecting import connect_async
from stratamq.client._async.consumer import AsyncConsumer
from stratamq.client._async.delivery import AsyncDelivery
from stratamq.client._async.lookup import AsyncLookup
from stratamq.client._async.producer import AsyncProducer
from stratamq.client._async.shared_reader import AsyncSharedMessage, AsyncSharedReader
from stratamq.client._async.transactions import AsyncTransaction, AsyncTransactionCheck
from stratamq.client._sync.admin import AdminClient
from stratamq.client._sync.client import Client
from stratamq.client._sync.connecting import connect
from stratamq.client._sync.consumer import Consumer
from stratamq.client._sync.delivery import Delivery
from stratamq.client._sync.lookup import Lookup
from stratamq.client._sync.producer import Producer
from stratamq.client._sync.shared_reader import SharedMessage, SharedReader
from stratamq.client._sync.transactions import Transaction, TransactionCheck
from stratamq.client.client_settings import Interceptor
from stratamq.client.group_receipts import GroupSettings, HeldMessages
from stratamq.client.group_reset import GroupReset
from stratamq.client.intake import ProducerSettings
from stratamq.client.members import MemberLook, Shard, ShardMember, shards_of
from stratamq.client.operations import Found, Pulled, TopicPage
from stratamq.client.reading import EARLIEST, LATEST, AtTime, Reading
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
from stratamq.client.storage_map import (
    IndexedRange,
    MappedSegment,
    StorageMap,
    StoredSegment,
    StoredSegments,
    TopicBytes,
    TopicShares,
)
from stratamq.client.topic_purge import QueuePurge
from stratamq.client.values import (
    CleaningLook,
    CleaningStep,
    ConsoleState,
    DeadLetter,
    DeadLetterPage,
    DeadLetterReplay,
    Election,
    GatewayState,
    GroupMember,
    GroupQueue,
    HalfMessage,
    HeldSchedule,
    JanitorState,
    LogShare,
    Message,
    Queue,
    Retention,
    ScheduledMessage,
    ScheduledMessages,
    SendResult,
    TierRequests,
    TierState,
    TimeBoundary,
    Topic,
)
from stratamq.client.whereabouts import Stage, Whereabouts
from stratamq.formats.log_damage import Damage
from stratamq.formats.log_state import LogState, ReplicaState, Role, ScrubState
from stratamq.formats.message_status import PullStatus, SendStatus
from stratamq.formats.topic_types import MessageType
from stratamq.formats.topics import Drain
from stratamq.rpc.credentials import Credentials, TlsFiles
from stratamq.rpc.request_ids import one_request

__all__ = [
    "EARLIEST",
    "LATEST",
    "AdminClient",
    "AsyncAdminClient",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncLookup",
    "AsyncProducer",
    "AsyncSharedMessage",
    "AsyncSharedReader",
    "AsyncTransaction",
    "AsyncTransactionCheck",
    "AtTime",
    "CleaningLook",
    "CleaningStep",
    "Client",
    "ConsoleState",
    "Consumer",
    "Credentials",
    "Damage",
    "DeadLetter",
    "DeadLetterPage",
    "DeadLetterReplay",
    "Delivery",
    "Demotion",
    "Drain",
    "Election",
    "FollowingProgress",
    "Found",
    "GatewayState",
    "GroupMember",
    "GroupQueue",
    "GroupReset",
    "GroupSettings",
    "HalfMessage",
    "HeldMessages",
    "HeldSchedule",
    "IndexedRange",
    "Interceptor",
    "JanitorState",
    "LogShare",
    "LogState",
    "Lookup",
    "MappedSegment",
    "MemberLook",
    "Message",
    "MessageType",
    "PeerView",
    "Producer",
    "ProducerSettings",
    "Promotion",
    "PullStatus",
    "Pulled",
    "Queue",
    "QueuePurge",
    "Reading",
    "ReceivedMessage",
    "Removal",
    "ReplicaState",
    "ReplicationState",
    "Retention",
    "Role",
    "ScheduledMessage",
    "ScheduledMessages",
    "ScrubState",
    "SendResult",
    "SendStatus",
    "Shard",
    "ShardMember",
    "SharedMessage",
    "SharedReader",
    "SlaveProgress",
    "Stage",
    "StorageMap",
    "StoredSegment",
    "StoredSegments",
    "TierRequests",
    "TierState",
    "TimeBoundary",
    "TlsFiles",
    "Topic",
    "TopicBytes",
    "TopicPage",
    "TopicShares",
    "Transaction",
    "TransactionCheck",
    "Whereabouts",
    "connect",
    "connect_async",
    "one_request",
    "shards_of",
]
