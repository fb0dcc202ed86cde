from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_CHANGE_UNSPECIFIED: _ClassVar[GroupChange]
    GROUP_CHANGE_CREATE: _ClassVar[GroupChange]
    GROUP_CHANGE_DELETE: _ClassVar[GroupChange]

class TransactionResolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_RESOLUTION_UNSPECIFIED: _ClassVar[TransactionResolution]
    TRANSACTION_RESOLUTION_COMMIT: _ClassVar[TransactionResolution]
    TRANSACTION_RESOLUTION_ROLLBACK: _ClassVar[TransactionResolution]
GROUP_CHANGE_UNSPECIFIED: GroupChange
GROUP_CHANGE_CREATE: GroupChange
GROUP_CHANGE_DELETE: GroupChange
TRANSACTION_RESOLUTION_UNSPECIFIED: TransactionResolution
TRANSACTION_RESOLUTION_COMMIT: TransactionResolution
TRANSACTION_RESOLUTION_ROLLBACK: TransactionResolution

class EnableScheduleRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EnableScheduleResponse(_message.Message):
    __slots__ = ("delayed_messages", "timed_messages", "half_messages")
    DELAYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TIMED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HALF_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    delayed_messages: int
    timed_messages: int
    half_messages: int
    def __init__(self, delayed_messages: _Optional[int] = ..., timed_messages: _Optional[int] = ..., half_messages: _Optional[int] = ...) -> None: ...

class MessagePlace(_message.Message):
    __slots__ = ("generation", "physical_offset")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    generation: int
    physical_offset: int
    def __init__(self, generation: _Optional[int] = ..., physical_offset: _Optional[int] = ...) -> None: ...

class ListScheduledRequest(_message.Message):
    __slots__ = ("topic", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ScheduledMessage(_message.Message):
    __slots__ = ("place", "topic", "queue_id", "level", "due_ms", "held", "message_id", "keys", "store_timestamp_ms")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    place: MessagePlace
    topic: str
    queue_id: int
    level: int
    due_ms: int
    held: bool
    message_id: str
    keys: str
    store_timestamp_ms: int
    def __init__(self, place: _Optional[_Union[MessagePlace, _Mapping]] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., level: _Optional[int] = ..., due_ms: _Optional[int] = ..., held: bool = ..., message_id: _Optional[str] = ..., keys: _Optional[str] = ..., store_timestamp_ms: _Optional[int] = ...) -> None: ...

class ListScheduledResponse(_message.Message):
    __slots__ = ("messages", "truncated")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    truncated: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., truncated: bool = ...) -> None: ...

class CancelScheduledRequest(_message.Message):
    __slots__ = ("place",)
    PLACE_FIELD_NUMBER: _ClassVar[int]
    place: MessagePlace
    def __init__(self, place: _Optional[_Union[MessagePlace, _Mapping]] = ...) -> None: ...

class CancelScheduledResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecallMessageRequest(_message.Message):
    __slots__ = ("topic", "physical_offset", "unique_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    physical_offset: int
    unique_key: str
    def __init__(self, topic: _Optional[str] = ..., physical_offset: _Optional[int] = ..., unique_key: _Optional[str] = ...) -> None: ...

class RecallMessageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliverScheduledNowRequest(_message.Message):
    __slots__ = ("place",)
    PLACE_FIELD_NUMBER: _ClassVar[int]
    place: MessagePlace
    def __init__(self, place: _Optional[_Union[MessagePlace, _Mapping]] = ...) -> None: ...

class DeliverScheduledNowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("group", "begin_offset", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    begin_offset: int
    limit: int
    def __init__(self, group: _Optional[str] = ..., begin_offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("place", "queue_offset", "origin_topic", "origin_message_id", "message_id", "keys", "attempts", "store_timestamp_ms", "replays")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    REPLAYS_FIELD_NUMBER: _ClassVar[int]
    place: MessagePlace
    queue_offset: int
    origin_topic: str
    origin_message_id: str
    message_id: str
    keys: str
    attempts: int
    store_timestamp_ms: int
    replays: int
    def __init__(self, place: _Optional[_Union[MessagePlace, _Mapping]] = ..., queue_offset: _Optional[int] = ..., origin_topic: _Optional[str] = ..., origin_message_id: _Optional[str] = ..., message_id: _Optional[str] = ..., keys: _Optional[str] = ..., attempts: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., replays: _Optional[int] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("dead_letters", "next_offset")
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next_offset: int
    def __init__(self, dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ReplayDeadLettersRequest(_message.Message):
    __slots__ = ("group", "places", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    places: _containers.RepeatedCompositeFieldContainer[MessagePlace]
    limit: int
    def __init__(self, group: _Optional[str] = ..., places: _Optional[_Iterable[_Union[MessagePlace, _Mapping]]] = ..., limit: _Optional[int] = ...) -> None: ...

class ReplayOutcome(_message.Message):
    __slots__ = ("place", "refusal")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    place: MessagePlace
    refusal: str
    def __init__(self, place: _Optional[_Union[MessagePlace, _Mapping]] = ..., refusal: _Optional[str] = ...) -> None: ...

class ReplayDeadLettersResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[ReplayOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ReplayOutcome, _Mapping]]] = ...) -> None: ...

class GetDeliveryStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDeliveryStatusResponse(_message.Message):
    __slots__ = ("applied_offset", "durable_offset", "log_confirmed_offset", "serving", "stopped_reason", "active", "delayed_messages", "levels", "held_messages", "timed_messages", "held_half_messages", "held_newest_ms", "held_timed_messages", "needed_offset")
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DELAYED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    HELD_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TIMED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_HALF_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_NEWEST_MS_FIELD_NUMBER: _ClassVar[int]
    HELD_TIMED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEEDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    applied_offset: int
    durable_offset: int
    log_confirmed_offset: int
    serving: bool
    stopped_reason: str
    active: bool
    delayed_messages: int
    levels: _containers.RepeatedCompositeFieldContainer[DelayLevel]
    held_messages: int
    timed_messages: int
    held_half_messages: int
    held_newest_ms: int
    held_timed_messages: int
    needed_offset: int
    def __init__(self, applied_offset: _Optional[int] = ..., durable_offset: _Optional[int] = ..., log_confirmed_offset: _Optional[int] = ..., serving: bool = ..., stopped_reason: _Optional[str] = ..., active: bool = ..., delayed_messages: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[DelayLevel, _Mapping]]] = ..., held_messages: _Optional[int] = ..., timed_messages: _Optional[int] = ..., held_half_messages: _Optional[int] = ..., held_newest_ms: _Optional[int] = ..., held_timed_messages: _Optional[int] = ..., needed_offset: _Optional[int] = ...) -> None: ...

class DelayLevel(_message.Message):
    __slots__ = ("level", "messages", "position", "next_due_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    level: int
    messages: int
    position: int
    next_due_ms: int
    def __init__(self, level: _Optional[int] = ..., messages: _Optional[int] = ..., position: _Optional[int] = ..., next_due_ms: _Optional[int] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "group", "workers", "wait_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    wait_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("client_id", "max_messages", "invisible_ms", "attempt_id", "leased", "tags")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    max_messages: int
    invisible_ms: int
    attempt_id: str
    leased: bool
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_id: _Optional[str] = ..., max_messages: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., attempt_id: _Optional[str] = ..., leased: bool = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class HandOut(_message.Message):
    __slots__ = ("worker", "ticket", "attempt", "invisible_until_ms", "frames")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    worker: int
    ticket: bytes
    attempt: int
    invisible_until_ms: int
    frames: bytes
    def __init__(self, worker: _Optional[int] = ..., ticket: _Optional[bytes] = ..., attempt: _Optional[int] = ..., invisible_until_ms: _Optional[int] = ..., frames: _Optional[bytes] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("hand_outs",)
    HAND_OUTS_FIELD_NUMBER: _ClassVar[int]
    hand_outs: _containers.RepeatedCompositeFieldContainer[HandOut]
    def __init__(self, hand_outs: _Optional[_Iterable[_Union[HandOut, _Mapping]]] = ...) -> None: ...

class AcknowledgeMessagesRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReturnMessagesRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts", "invisible_ms", "unseen")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    invisible_ms: int
    unseen: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., invisible_ms: _Optional[int] = ..., unseen: bool = ...) -> None: ...

class ChangeInvisibleTimeRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts", "invisible_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    invisible_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., invisible_ms: _Optional[int] = ...) -> None: ...

class BuryMessagesRequest(_message.Message):
    __slots__ = ("topic", "group", "receipts", "attempts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    receipts: _containers.RepeatedScalarFieldContainer[bytes]
    attempts: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., receipts: _Optional[_Iterable[bytes]] = ..., attempts: _Optional[int] = ...) -> None: ...

class SettleOutcome(_message.Message):
    __slots__ = ("refusal", "receipt")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    receipt: bytes
    def __init__(self, refusal: _Optional[str] = ..., receipt: _Optional[bytes] = ...) -> None: ...

class AcknowledgeMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SettleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SettleOutcome, _Mapping]]] = ...) -> None: ...

class ReturnMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SettleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SettleOutcome, _Mapping]]] = ...) -> None: ...

class ChangeInvisibleTimeResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SettleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SettleOutcome, _Mapping]]] = ...) -> None: ...

class BuryMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[SettleOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SettleOutcome, _Mapping]]] = ...) -> None: ...

class RenewLeaseRequest(_message.Message):
    __slots__ = ("group", "client_id", "lease_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    lease_ms: int
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RenewLeaseResponse(_message.Message):
    __slots__ = ("until_ms",)
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    until_ms: int
    def __init__(self, until_ms: _Optional[int] = ...) -> None: ...

class ListHandOutsRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    offset: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class SharedQueueInfo(_message.Message):
    __slots__ = ("topic", "queue_id", "floor", "next_offset", "unfinished")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    floor: int
    next_offset: int
    unfinished: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., floor: _Optional[int] = ..., next_offset: _Optional[int] = ..., unfinished: _Optional[int] = ...) -> None: ...

class HandOutInfo(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "count", "client_id", "attempt", "until_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    count: int
    client_id: str
    attempt: int
    until_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., client_id: _Optional[str] = ..., attempt: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ListHandOutsResponse(_message.Message):
    __slots__ = ("queues", "hand_outs", "truncated", "now_ms")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    HAND_OUTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[SharedQueueInfo]
    hand_outs: _containers.RepeatedCompositeFieldContainer[HandOutInfo]
    truncated: bool
    now_ms: int
    def __init__(self, queues: _Optional[_Iterable[_Union[SharedQueueInfo, _Mapping]]] = ..., hand_outs: _Optional[_Iterable[_Union[HandOutInfo, _Mapping]]] = ..., truncated: bool = ..., now_ms: _Optional[int] = ...) -> None: ...

class StopSharingRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class StopSharingResponse(_message.Message):
    __slots__ = ("queue_count",)
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    queue_count: int
    def __init__(self, queue_count: _Optional[int] = ...) -> None: ...

class GroupSettings(_message.Message):
    __slots__ = ("ordered", "retries", "consume_enabled", "group")
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ordered: bool
    retries: int
    consume_enabled: bool
    group: str
    def __init__(self, ordered: bool = ..., retries: _Optional[int] = ..., consume_enabled: bool = ..., group: _Optional[str] = ...) -> None: ...

class AlterGroupRequest(_message.Message):
    __slots__ = ("group", "change", "ordered", "retries", "consume_enabled")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    group: str
    change: GroupChange
    ordered: bool
    retries: int
    consume_enabled: bool
    def __init__(self, group: _Optional[str] = ..., change: _Optional[_Union[GroupChange, str]] = ..., ordered: bool = ..., retries: _Optional[int] = ..., consume_enabled: bool = ...) -> None: ...

class AlterGroupResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ...) -> None: ...

class GetGroupSettingsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GetGroupSettingsResponse(_message.Message):
    __slots__ = ("settings", "groups")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    groups: _containers.RepeatedCompositeFieldContainer[GroupSettings]
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[GroupSettings, _Mapping]]] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("producer_group", "messages", "resolution")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    messages: _containers.RepeatedCompositeFieldContainer[HalfMessage]
    resolution: TransactionResolution
    def __init__(self, producer_group: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[HalfMessage, _Mapping]]] = ..., resolution: _Optional[_Union[TransactionResolution, str]] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HalfMessage(_message.Message):
    __slots__ = ("topic", "physical_offset", "unique_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    physical_offset: int
    unique_key: str
    def __init__(self, topic: _Optional[str] = ..., physical_offset: _Optional[int] = ..., unique_key: _Optional[str] = ...) -> None: ...

class CheckTransactionsRequest(_message.Message):
    __slots__ = ("producer_group", "topics")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, producer_group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckTransactionsResponse(_message.Message):
    __slots__ = ("message", "number", "queue_offset", "frame")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    message: HalfMessage
    number: int
    queue_offset: int
    frame: bytes
    def __init__(self, message: _Optional[_Union[HalfMessage, _Mapping]] = ..., number: _Optional[int] = ..., queue_offset: _Optional[int] = ..., frame: _Optional[bytes] = ...) -> None: ...

class ShareMembersRequest(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[MemberChange]
    def __init__(self, changes: _Optional[_Iterable[_Union[MemberChange, _Mapping]]] = ...) -> None: ...

class ShareMembersResponse(_message.Message):
    __slots__ = ("changes", "told_all")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    TOLD_ALL_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[MemberChange]
    told_all: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[MemberChange, _Mapping]]] = ..., told_all: bool = ...) -> None: ...

class MemberChange(_message.Message):
    __slots__ = ("gateway", "group", "client_id", "member")
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    gateway: int
    group: str
    client_id: str
    member: bytes
    def __init__(self, gateway: _Optional[int] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ..., member: _Optional[bytes] = ...) -> None: ...

class ClassicMember(_message.Message):
    __slots__ = ("address", "language", "version", "consume_type", "message_model", "consume_from_where", "subscriptions", "since_ms")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSUME_TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_MODEL_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FROM_WHERE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    address: str
    language: str
    version: int
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[ClassicSubscription]
    since_ms: int
    def __init__(self, address: _Optional[str] = ..., language: _Optional[str] = ..., version: _Optional[int] = ..., consume_type: _Optional[str] = ..., message_model: _Optional[str] = ..., consume_from_where: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[ClassicSubscription, _Mapping]]] = ..., since_ms: _Optional[int] = ...) -> None: ...

class ClassicSubscription(_message.Message):
    __slots__ = ("topic", "expression", "kind", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    expression: str
    kind: str
    version: int
    def __init__(self, topic: _Optional[str] = ..., expression: _Optional[str] = ..., kind: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ListClassicMembersRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListClassicMembersResponse(_message.Message):
    __slots__ = ("members", "truncated", "now_ms")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[ListedClassicMember]
    truncated: bool
    now_ms: int
    def __init__(self, members: _Optional[_Iterable[_Union[ListedClassicMember, _Mapping]]] = ..., truncated: bool = ..., now_ms: _Optional[int] = ...) -> None: ...

class ListedClassicMember(_message.Message):
    __slots__ = ("client_id", "member")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    member: ClassicMember
    def __init__(self, client_id: _Optional[str] = ..., member: _Optional[_Union[ClassicMember, _Mapping]] = ...) -> None: ...

class LockedQueue(_message.Message):
    __slots__ = ("broker", "topic", "queue_id")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    broker: str
    topic: str
    queue_id: int
    def __init__(self, broker: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("group", "client_id", "queues", "unlock", "kept")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNLOCK_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    unlock: bool
    kept: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ..., unlock: bool = ..., kept: bool = ...) -> None: ...

class LockQueuesResponse(_message.Message):
    __slots__ = ("queues", "unknown")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    unknown: _containers.RepeatedCompositeFieldContainer[LockedQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ..., unknown: _Optional[_Iterable[_Union[LockedQueue, _Mapping]]] = ...) -> None: ...
