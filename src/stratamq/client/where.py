"""Finds out one message's life. No I/O: generators of operations.

It takes seven calls, and one or two for each key and shared group that is asked about, whose
numbers are limited: the cost does not grow with the log. A service that does not answer becomes a
note.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from stratamq.api.v1 import delivery_pb2, dispatcher_pb2, index_pb2
from stratamq.client import operations
from stratamq.client.operations import Found, Operation, called
from stratamq.client.received import ReceivedMessage
from stratamq.client.values import Topic
from stratamq.client.whereabouts import (
    Copy,
    DeletionOutlook,
    DeliveryOutlook,
    GroupStage,
    IndexedKey,
    MemberCopy,
    PlaceInLog,
    PlaceInQueue,
    Stage,
    Whereabouts,
)
from stratamq.errors import StrataError
from stratamq.formats.log_state import LogState
from stratamq.formats.properties import REAL_TOPIC, TIMER_OUT_MS
from stratamq.formats.topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from stratamq.rpc.mirrors import value_of

T = TypeVar("T")
Steps = Generator[Operation[Any], Any, T]

MAX_KEYS, MAX_GROUPS, MAX_ASKED = 16, 20, 16
"""Keys that are looked up; groups that are named of each kind; groups whose workers and dead
letters are asked for."""


WAITING_TOPICS = (TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC)
"""Where messages are that consumers of their topic cannot get yet."""
MAX_WAITING = 100
"""So many messages of a key are looked at in each of them."""


def plan_where(message: ReceivedMessage) -> Steps[Whereabouts]:
    """Everything about a message that was found by any of its names."""
    notes: list[str] = []
    state: LogState = yield operations.log_state()
    log = _place_in_log(message, state)
    topics: list[Topic] | None = yield from _try(operations.topics(message.topic), "topics", notes)
    place = queue_place(message.topic, message.queue_id, message.queue_offset)
    queue: PlaceInQueue | None = yield from _try(place, "queue", notes)
    keys = yield from _keys(message, notes)
    groups, counts = yield from _groups(message, notes)
    fate: DeletionOutlook | None = None
    if log.present:
        fate = yield from _try(_fate(message.physical_offset), "retention", notes)
    waits_for = waiting_for(message)
    delivered = (yield from _delivered(message, waits_for, notes)) if waits_for else None
    tier = next((one for one in state.followers if one.name == "tier"), None)
    return Whereabouts(
        message=message,
        log=log,
        queue=queue,
        topic_exists=_exists(message.topic, topics),
        keys=keys,
        members=_members(message, state),
        in_tier=None if tier is None else message.physical_offset < tier.durable_offset,
        groups=groups,
        groups_read=counts[0] if counts else 0,
        groups_not_read=counts[1] if counts else 0,
        groups_known=counts is not None,
        fate=fate,
        waits_for=waits_for,
        due_ms=_due_ms(message, queue),
        delivered_as=delivered,
        notes=tuple(notes),
    )


def _try(operation: Operation[T], what: str, notes: list[str]) -> Steps[T | None]:
    try:
        result: T = yield operation
        return result
    except StrataError as error:
        notes.append(f"{what} not known: {error}")
        return None


# --- the log and its copies ---


def _place_in_log(message: ReceivedMessage, state: LogState) -> PlaceInLog:
    begin, end = message.physical_offset, message.physical_offset + message.size
    position = begin % state.segment_bytes if state.segment_bytes else 0
    earlier = [one for one in state.generations if one.start <= begin]
    return PlaceInLog(
        broker=state.broker_name,
        role="" if state.role is None else state.role.name,
        present=begin >= state.minimum_offset,
        segment=begin - position,
        position=position,
        minimum_offset=state.minimum_offset,
        confirmed_offset=state.confirmed_offset,
        flushed=end <= state.flushed_offset,
        generation=earlier[-1].number if earlier else 0,
        damage=next(
            (one for one in state.scrub.damage if one.start < end and begin < one.end), None
        ),
    )


def _members(message: ReceivedMessage, state: LogState) -> list[MemberCopy]:
    end = message.physical_offset + message.size
    return [
        MemberCopy(
            one.member or one.address,
            one.acknowledged_offset,
            end <= one.acknowledged_offset,
            one.connected,
        )
        for one in state.replicas
    ]


def _exists(topic: str, topics: list[Topic] | None) -> bool | None:
    if topics is None or is_system_topic(topic):
        return None
    return bool(topics)


def _fate(offset: int) -> Operation[DeletionOutlook]:
    return called(
        "GetRetention", lambda response: value_of(DeletionOutlook, response.fate), offset=offset
    )


# --- the queue ---


def queue_place(topic: str, queue_id: int, queue_offset: int) -> Operation[PlaceInQueue]:
    """A queue's entry at an offset, also one that was purged."""

    def result(response: dispatcher_pb2.ListUnitsResponse) -> PlaceInQueue:
        found = operations.units_of(response)
        unit = next((one for one in found if one.queue_offset == queue_offset), None)
        return PlaceInQueue(unit, response.min_offset, response.max_offset)

    return called("ListUnits", result, topic=topic, queue_id=queue_id, offset=queue_offset, count=1)


def waiting_for(message: ReceivedMessage) -> str:
    """The topic to which a delayed message goes, or one of a transaction; "" for any other."""
    return message.properties.get(REAL_TOPIC, "") if message.topic in WAITING_TOPICS else ""


def plan_delivery(message: ReceivedMessage) -> Steps[DeliveryOutlook | None]:
    """What becomes of a message that waits; None of any other."""
    topic = waiting_for(message)
    if not topic:
        return None
    queue: PlaceInQueue = yield queue_place(message.topic, message.queue_id, message.queue_offset)
    delivered = yield from _delivered(message, topic, [])
    return DeliveryOutlook(topic, _due_ms(message, queue), delivered)


def _due_ms(message: ReceivedMessage, queue: PlaceInQueue | None) -> int:
    """When it is due, 0 if that is not known: of a delay level the tag code of its unit says it."""
    if message.topic == SCHEDULE_TOPIC and queue is not None and queue.unit is not None:
        return queue.unit.tags_code
    asked = message.properties.get(TIMER_OUT_MS, "")
    return int(asked) if message.topic == TIMER_TOPIC and asked.isdecimal() else 0


def _delivered(message: ReceivedMessage, topic: str, notes: list[str]) -> Steps[Copy | None]:
    """The copy by which a message reached its topic: it has the same unique key."""
    if not message.unique_key:
        return None
    query = operations.query_key(topic, message.unique_key, max_messages=1, unique=True)
    found: Found | None = yield from _try(query, "delivery", notes)
    if not found or not found.messages:
        return None
    copy = found.messages[0]
    return Copy(copy.topic, copy.queue_id, copy.queue_offset)


# --- the index ---


def _keys(message: ReceivedMessage, notes: list[str]) -> Steps[list[IndexedKey]]:
    """Each key once, the unique key last."""
    names = list(dict.fromkeys(message.keys))
    if len(names) > MAX_KEYS:
        notes.append(f"{len(names) - MAX_KEYS} more keys were not looked up")
    asked = [(key, False) for key in names[:MAX_KEYS]]
    if message.unique_key:
        asked.append((message.unique_key, True))
    if not asked:
        return []
    files: list[_IndexFile] | None = yield from _try(_index_files(), "index files", notes)
    at, stored_ms = message.physical_offset, message.store_timestamp_ms
    name = next((one.name for one in files or () if one.begin <= at <= one.end), "")
    found: list[IndexedKey] = []
    for key, unique in asked:
        query = operations.query_key(
            message.topic, key, begin_ms=stored_ms, end_ms=stored_ms, unique=unique
        )
        answer: Found | None = yield from _try(query, f"index of the key {key}", notes)
        if answer is not None:
            there = any(one.physical_offset == at for one in answer.messages)
            if there or not answer.truncated:
                found.append(IndexedKey(key, unique, there, name if there else ""))
            else:
                notes.append(f"index of the key {key} not known: too many messages have it")
    return found


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """A file of the index, and the offsets of the log of its first and its last item."""

    name: str
    begin: int
    end: int


def _index_files() -> Operation[list[_IndexFile]]:
    def result(response: index_pb2.GetIndexStatusResponse) -> list[_IndexFile]:
        return [
            _IndexFile(one.name, one.begin_physical_offset, one.end_physical_offset)
            for one in response.files
        ]

    return called("GetIndexStatus", result)


# --- groups ---


@dataclass(frozen=True, slots=True)
class _Readers:
    """Groups of a queue, and how many of all of them have read the message."""

    groups: list[GroupStage]
    read: int
    unread: int


def _readers(topic: str, queue_id: int, queue_offset: int) -> Operation[_Readers]:
    """Some of the groups that have committed something of the topic, by what they have read."""

    def result(response: dispatcher_pb2.ListGroupsResponse) -> _Readers:
        groups = [
            GroupStage(
                one.group,
                Stage.READ if one.offset > queue_offset else Stage.NOT_READ,
                one.offset,
                one.shared,
                max(0, queue_offset - max(one.offset, one.max_offset - one.lag)),
            )
            for one in response.groups
        ]
        return _Readers(groups, response.read_groups, response.unread_groups)

    return called(
        "ListGroups",
        result,
        topic=topic,
        queue_id=queue_id,
        offset=queue_offset,
        max_entries=MAX_GROUPS,
    )


def _groups(
    message: ReceivedMessage, notes: list[str]
) -> Steps[tuple[list[GroupStage], tuple[int, int] | None]]:
    """The groups that are shown, and how many have read it and have not; None: not known."""
    listing = _readers(message.topic, message.queue_id, message.queue_offset)
    found: _Readers | None = yield from _try(listing, "groups", notes)
    if found is None:
        return [], None
    if found.read + found.unread > len(found.groups):
        notes.append(f"at most {MAX_GROUPS} groups of each kind are named")
    shared = [one for one in found.groups if one.shared]
    known: list[GroupStage] = []
    for one in found.groups:
        if one.shared and shared.index(one) < MAX_ASKED:
            one = yield from _shared(one, message, notes)
        known.append(one)
    if len(shared) > MAX_ASKED:
        notes.append(f"workers of {len(shared) - MAX_ASKED} more shared groups were not asked for")
    # Above its floor a shared group may have finished it.
    before = sum(1 for one in found.groups if one.stage is Stage.READ)
    finished = sum(1 for one in known if one.stage in (Stage.READ, Stage.DEAD)) - before
    known.sort(key=lambda one: one.stage is Stage.READ)
    return known, (found.read + finished, found.unread - finished)


def _shared(one: GroupStage, message: ReceivedMessage, notes: list[str]) -> Steps[GroupStage]:
    """What a shared group's workers made of the message."""
    if one.stage is not Stage.READ:
        holding = _holding(one, message)
        held: GroupStage | None = yield from _try(holding, f"workers of {one.group}", notes)
        one = held or one
    if one.stage is not Stage.READ or not message.unique_key:
        return one
    query = operations.query_key(
        DEAD_LETTER_PREFIX + one.group, message.unique_key, max_messages=1, unique=True
    )
    found: Found | None = yield from _try(query, f"dead letters of {one.group}", notes)
    if not found or not found.messages:
        return one
    letter = found.messages[0].queue_offset
    return GroupStage(one.group, Stage.DEAD, one.offset, True, dead_letter=letter)


def _holding(one: GroupStage, message: ReceivedMessage) -> Operation[GroupStage]:
    """Above its floor the group may have finished the message, or a worker has it."""
    at = message.queue_offset

    def result(response: delivery_pb2.ListHandOutsResponse) -> GroupStage:
        place = message.topic, message.queue_id
        queue = next((q for q in response.queues if (q.topic, q.queue_id) == place), None)
        if queue is None or at >= queue.next_offset:
            return one
        for held in response.hand_outs:
            same = (held.topic, held.queue_id) == place
            if same and held.offset <= at < held.offset + held.count:
                hidden = held.until_ms > response.now_ms
                return GroupStage(
                    one.group,
                    Stage.HELD if hidden else Stage.READY,
                    queue.floor,
                    True,
                    one.before,
                    held.client_id,
                    held.attempt,
                    held.until_ms,
                )
        stage = Stage.UNKNOWN if response.truncated else Stage.READ
        return GroupStage(one.group, stage, queue.floor, True)

    return called(
        "ListHandOuts",
        result,
        group=one.group,
        topic=message.topic,
        queue_id=message.queue_id,
        offset=at,
    )
