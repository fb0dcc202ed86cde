"""The unary calls of operators as values: states of the services, and changes of them."""

from collections.abc import Sequence
from functools import partial

from stratamq.api.v1 import (
    commitlog_pb2,
    common_pb2,
    delivery_pb2,
    index_pb2,
    janitor_pb2,
    tier_pb2,
)
from stratamq.client.operations import Operation, called, topic_of, wire_message
from stratamq.client.values import (
    CleaningLook,
    CleaningStep,
    ConsoleState,
    DeadLetter,
    DeadLetterPage,
    DeadLetterReplay,
    Election,
    FollowerServiceState,
    GatewayState,
    HeldSchedule,
    JanitorState,
    LogShare,
    Retention,
    ScheduledMessage,
    ScheduledMessages,
    TierRequests,
    TierState,
    Topic,
)
from stratamq.errors import InvalidRequestError
from stratamq.formats.topic_types import MessageType
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import value_of


def put_topic(topic: Topic, *, must_be_new: bool = False) -> Operation[Topic]:
    """Create it or change its settings."""
    wire = wire_message(
        common_pb2.TopicConfig,
        topic=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        permission=topic.permission,
        ordered=topic.ordered,
        system_flags=topic.system_flags,
        message_type=topic.message_type.number,
    )
    return called(
        "PutTopic", lambda response: topic_of(response.topic), topic=wire, must_be_new=must_be_new
    )


def alter_topic(
    name: str,
    read_queue_count: int | None,
    write_queue_count: int | None,
    permission: int | None,
    ordered: bool | None,
    message_type: MessageType | None,
) -> Operation[Topic]:
    change = wire_message(
        commitlog_pb2.TopicChange,
        topic=name,
        read_queue_count=read_queue_count,
        write_queue_count=write_queue_count,
        permission=permission,
        ordered=ordered,
        message_type=None if message_type is None else message_type.number,
    )
    return called("PutTopic", lambda response: topic_of(response.topic), change=change)


def trust_clock() -> Operation[None]:
    return called("TrustClock", lambda _: None)


def delete_below(
    offset: int, *, max_segments: int, urgent: bool
) -> Operation[tuple[int, tuple[str, ...]]]:
    return called(
        "DeleteBelow",
        lambda response: (response.minimum_offset, tuple(response.deleted)),
        offset=offset,
        max_segments=max_segments,
        urgent=urgent,
    )


def janitor_state() -> Operation[JanitorState]:
    def result(state: janitor_pb2.GetJanitorStatusResponse) -> JanitorState:
        last = look_of(state.last) if state.HasField("last") else None
        return value_of(JanitorState, state, last=last)

    return called("GetJanitorStatus", result)


def tier_state() -> Operation[TierState]:
    def result(state: tier_pb2.GetTierStatusResponse) -> TierState:
        return value_of(
            TierState,
            state,
            queues=state.queue_count,
            index_items=state.index_items + state.index_waiting_items,
            queues_not_indexed=state.index_queues_behind,
            requests=tuple(
                value_of(TierRequests, one, size_bytes=one.bytes) for one in state.requests
            ),
        )

    return called("GetTierStatus", result)


def retention() -> Operation[Retention]:
    return called("GetRetention", lambda r: retention_of(r.retention))


def set_retention(enabled: bool) -> Operation[Retention]:
    return called("SetRetention", lambda r: retention_of(r.retention), enabled=enabled)


def retention_of(wire: janitor_pb2.Retention) -> Retention:
    return Retention(
        disabled=wire.disabled,
        policy=wire.policy,
        at_once=LogShare(wire.at_once.segments, wire.at_once.size_bytes),
        expired=LogShare(wire.expired.segments, wire.expired.size_bytes),
    )


def plan_cleaning(*, manual: bool, trust_clock: bool) -> Operation[CleaningLook]:
    return called(
        "PlanCleaning",
        lambda response: look_of(response.look),
        manual=manual,
        trust_clock=trust_clock,
    )


def run_cleaning(*, trust_clock: bool) -> Operation[CleaningLook]:
    return called("RunCleaning", lambda response: look_of(response.look), trust_clock=trust_clock)


def look_of(look: janitor_pb2.Look) -> CleaningLook:
    return value_of(
        CleaningLook,
        look,
        deletions=tuple(
            CleaningStep(one.start_offset, one.end_offset, one.reason, one.sentence)
            for one in look.deletions
        ),
        held=tuple(
            CleaningStep(one.start_offset, one.end_offset, one.by, one.sentence)
            for one in look.held
        ),
        kept=CleaningStep(look.kept.start_offset, look.kept.end_offset, "", look.kept.sentence)
        if look.HasField("kept")
        else None,
    )


def dispatch_state() -> Operation[FollowerServiceState]:
    return called(
        "GetDispatchStatus",
        lambda state: value_of(FollowerServiceState, state, parts=state.queue_count),
    )


def index_state() -> Operation[FollowerServiceState]:
    return called(
        "GetIndexStatus",
        lambda state: value_of(FollowerServiceState, state, parts=len(state.files)),
    )


def held_schedule() -> Operation[HeldSchedule]:

    def result(state: delivery_pb2.GetDeliveryStatusResponse) -> HeldSchedule:
        halves, newest_ms = state.held_half_messages, state.held_newest_ms
        timed = state.held_timed_messages
        return HeldSchedule(state.held_messages - timed, timed, halves, newest_ms)

    return called("GetDeliveryStatus", result)


def enable_schedule() -> Operation[HeldSchedule]:

    def result(held: delivery_pb2.EnableScheduleResponse) -> HeldSchedule:
        return HeldSchedule(held.delayed_messages, held.timed_messages, held.half_messages)

    return called("EnableSchedule", result)


def scheduled_messages(topic: str, limit: int) -> Operation[ScheduledMessages]:
    def result(found: delivery_pb2.ListScheduledResponse) -> ScheduledMessages:
        messages = tuple(
            value_of(ScheduledMessage, one, place=_text_of(one.place)) for one in found.messages
        )
        return ScheduledMessages(messages, found.truncated)

    return called("ListScheduled", result, topic=topic, limit=limit)


def cancel_scheduled(place: str) -> Operation[None]:
    return called("CancelScheduled", lambda _: None, place=_place(place))


def recall_message(topic: str, physical_offset: int, unique_key: str) -> Operation[None]:
    return called(
        "RecallMessage",
        lambda _: None,
        topic=topic,
        physical_offset=physical_offset,
        unique_key=unique_key,
    )


def deliver_scheduled_now(place: str) -> Operation[None]:
    return called("DeliverScheduledNow", lambda _: None, place=_place(place))


def dead_letters(group: str, begin: int, limit: int) -> Operation[DeadLetterPage]:
    def result(found: delivery_pb2.ListDeadLettersResponse) -> DeadLetterPage:
        letters = tuple(
            value_of(DeadLetter, one, place=_text_of(one.place)) for one in found.dead_letters
        )
        return DeadLetterPage(letters, found.next_offset)

    fields = {"group": group, "begin_offset": begin, "limit": limit}
    return called("ListDeadLetters", result, **fields)


def replay_dead_letters(
    group: str, places: Sequence[str], limit: int
) -> Operation[tuple[DeadLetterReplay, ...]]:
    def result(found: delivery_pb2.ReplayDeadLettersResponse) -> tuple[DeadLetterReplay, ...]:
        return tuple(DeadLetterReplay(_text_of(one.place), one.refusal) for one in found.outcomes)

    request = wire_message(delivery_pb2.ReplayDeadLettersRequest, group=group, limit=limit)
    request.places.extend(map(_place, places))
    return Operation(METHODS["ReplayDeadLetters"], request, result)


def _text_of(place: delivery_pb2.MessagePlace) -> str:
    return f"{place.generation}:{place.physical_offset}"


def _place(text: str) -> delivery_pb2.MessagePlace:
    numbers = text.split(":") if isinstance(text, str) else []
    if len(numbers) != 2 or not all(
        one.isascii() and one.isdigit() and len(one) < 19 for one in numbers
    ):
        raise InvalidRequestError(f"{text!r} is no place of a message: GENERATION:OFFSET")
    return delivery_pb2.MessagePlace(generation=int(numbers[0]), physical_offset=int(numbers[1]))


def gateway_state() -> Operation[GatewayState]:
    return called("GetGatewayStatus", partial(value_of, GatewayState))


def console_state() -> Operation[ConsoleState]:
    return called("GetConsoleStatus", partial(value_of, ConsoleState))


def delivery_state() -> Operation[FollowerServiceState]:

    def result(state: delivery_pb2.GetDeliveryStatusResponse) -> FollowerServiceState:
        waiting = state.held_messages + state.held_half_messages
        held = f"{waiting} messages of another program are held: see `stratamq schedule`"
        report = (held,) if waiting else ()
        return value_of(
            FollowerServiceState, state, parts=state.delayed_messages, recovery_report=report
        )

    return called("GetDeliveryStatus", result)


def rebuild_index(start_offset: int = 0, end_offset: int = 0) -> Operation[tuple[int, int]]:
    """Files rebuilt and items written."""
    request = wire_message(
        index_pb2.RebuildRequest, start_offset=start_offset, end_offset=end_offset
    )
    return Operation(
        METHODS["Rebuild"], request, lambda r: (r.files_rebuilt, r.items), wait_s=3600.0
    )


def grant_lease(term: int, boot: str, until_ns: int, ended_reason: str) -> Operation[None]:
    return called(
        "GrantLease",
        lambda _: None,
        term=term,
        boot=boot,
        until_ns=until_ns,
        ended_reason=ended_reason,
    )


def election() -> Operation[Election]:
    return called("GetElection", lambda state: value_of(Election, state, agents=dict(state.agents)))


def switchover(member: str) -> Operation[None]:
    return called("Switchover", lambda _: None, member=member)


def set_failover_paused(paused: bool) -> Operation[None]:
    return called("SetPaused", lambda _: None, paused=paused)
