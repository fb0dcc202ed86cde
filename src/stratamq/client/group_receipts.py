"""The calls of a shared group's worker as values; see `operations`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.client.operations import Operation, called, wire_message
from stratamq.client.received import ReceivedMessage, split_heads
from stratamq.errors import ExpiredReceiptError
from stratamq.formats.receipts import TICKET_BYTES, make_receipt
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import value_of


@dataclass(frozen=True, slots=True)
class GroupWorker:
    """What a worker asks for in one call."""

    client_id: str
    max_messages: int
    invisible_s: float
    attempt_id: str
    leased: bool
    tags: tuple[str, ...] = ()
    """Messages with one of them; none: all. The others are finished for the group."""


@dataclass(frozen=True, slots=True)
class HandOut:
    """What the messages of one hand-out have in common: until when they are this client's, by the
    broker's clock, and what their receipts begin with."""

    ticket: bytes
    attempt: int
    until_ms: int


HandedFrame = tuple[bytes, tuple[int, ...], HandOut]
"""One message: its frame, the frame's first fields, and its hand-out."""


class HandedMessage(ReceivedMessage):
    """A message that was handed to one worker."""

    ticket = b""

    @property
    def receipt(self) -> bytes:
        """What it is settled with."""
        return receipts_of([self])[0]


def receipts_of(messages: Iterable[HandedMessage]) -> list[bytes]:
    """One for each run of consecutive messages with one ticket."""
    receipts: list[bytes] = []
    ticket, start, end, first, last = b"", 0, 0, 0, 0
    for message in messages:
        offset, place = message.queue_offset, message.physical_offset
        if offset == end and message.ticket == ticket:
            end, last = end + 1, place
            continue
        if ticket:
            receipts.append(make_receipt(ticket, start, end - start, first, last))
        ticket, start, end, first, last = message.ticket, offset, offset + 1, place, place
    if ticket:
        receipts.append(make_receipt(ticket, start, end - start, first, last))
    return receipts


@dataclass(frozen=True, slots=True)
class HeldMessages:
    """Consecutive messages of a queue that one worker of a shared group holds, or that are ready
    again since `until_ms`, by the broker's clock."""

    topic: str
    queue_id: int
    offset: int
    count: int
    client_id: str
    attempt: int
    until_ms: int
    seconds_left: float
    broker: str = ""
    """The name of the broker that they are at, of a client of several."""


def held_messages(group: str) -> Operation[list[HeldMessages]]:
    def result(response: pb.ListHandOutsResponse) -> list[HeldMessages]:
        return [
            value_of(HeldMessages, one, seconds_left=(one.until_ms - response.now_ms) / 1_000)
            for one in response.hand_outs
        ]

    return called("ListHandOuts", result, group=group)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a broker serves a shared group."""

    group: str
    ordered: bool
    """Whether of each message group (property `__SHARDINGKEY`) one message of a queue is handed
    out at a time, until it is acknowledged."""
    retries: int
    """How often a message is handed out again before it is a dead letter."""
    consume_enabled: bool
    broker: str = ""
    """The name of the broker, of a client of several."""


def group_settings(group: str) -> Operation[list[GroupSettings]]:

    def result(response: pb.GetGroupSettingsResponse) -> list[GroupSettings]:
        return [_settings(one) for one in ([response.settings] if group else response.groups)]

    return called("GetGroupSettings", result, group=group)


def alter_group(
    group: str,
    change: pb.GroupChange,
    ordered: bool | None = None,
    retries: int | None = None,
    consume_enabled: bool | None = None,
) -> Operation[GroupSettings]:
    given = {"ordered": ordered, "retries": retries, "consume_enabled": consume_enabled}
    fields = {name: value for name, value in given.items() if value is not None}
    return called(
        "AlterGroup",
        lambda response: _settings(response.settings),
        group=group,
        change=change,
        **fields,
    )


def _settings(one: pb.GroupSettings) -> GroupSettings:
    return GroupSettings(one.group, one.ordered, one.retries, one.consume_enabled)


def stop_sharing(group: str) -> Operation[int]:
    return called("StopSharing", lambda response: int(response.queue_count), group=group)


def receive(
    topic: str, group: str, workers: Sequence[GroupWorker], wait_s: float
) -> Operation[list[list[HandedFrame]]]:
    """What each of the workers gets. Sent again after a lost answer, it gets the same messages."""
    request = wire_message(
        pb.ReceiveRequest,
        topic=topic,
        group=group,
        wait_ms=round(wait_s * 1_000),
        workers=[
            wire_message(
                pb.Worker,
                client_id=one.client_id,
                max_messages=one.max_messages,
                invisible_ms=round(one.invisible_s * 1_000),
                attempt_id=one.attempt_id,
                leased=one.leased,
                tags=one.tags,
            )
            for one in workers
        ],
    )

    def result(response: pb.ReceiveResponse) -> list[list[HandedFrame]]:
        found: list[list[HandedFrame]] = [[] for _ in workers]
        for one in response.hand_outs:
            given = HandOut(one.ticket, one.attempt, one.invisible_until_ms)
            found[one.worker] += [(*frame, given) for frame in split_heads(one.frames)]
        return found

    return Operation(METHODS["Receive"], request, result, wait_s=wait_s)


def renew_lease(group: str, client_id: str, lease_s: float) -> Operation[None]:
    return called(
        "RenewLease",
        lambda _: None,
        group=group,
        client_id=client_id,
        lease_ms=round(lease_s * 1_000),
    )


def settle(
    method: str,
    topic: str,
    group: str,
    receipts: Sequence[bytes],
    invisible_s: float = 0,
    attempts: int = 0,
    unseen: bool = False,
) -> Operation[list[pb.SettleOutcome]]:
    """One outcome for each message; none: all are settled, and keep their receipts."""
    given = {
        "invisible_ms": round(invisible_s * 1_000), "attempts": attempts, "unseen": unseen,
    }  # fmt: skip
    fields = {name: value for name, value in given.items() if value}
    request = wire_message(
        getattr(pb, f"{method}Request"),
        topic=topic,
        group=group,
        receipts=list(receipts),
        **fields,
    )
    return Operation(METHODS[method], request, lambda response: list(response.outcomes))


def settled(messages: Sequence[HandedMessage], outcomes: Sequence[pb.SettleOutcome]) -> None:
    """Give the messages the receipts that replace theirs. ExpiredReceiptError names what was
    refused; the others are settled."""
    refused = [one.refusal for one in outcomes if one.refusal]
    if refused:
        raise ExpiredReceiptError(
            f"{len(refused)} of {len(outcomes)} messages are as they were: "
            + "; ".join(refused[:8])
        )
    for message, outcome in zip(messages, outcomes, strict=False):
        message.ticket = outcome.receipt[:TICKET_BYTES] or message.ticket
