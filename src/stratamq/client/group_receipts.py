"""The calls of a shared group's worker as values; see `operations`."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.client.operations import Operation, wire_message
from stratamq.client.received import ReceivedMessage
from stratamq.errors import ExpiredReceiptError
from stratamq.rpc.methods import METHODS


@dataclass(frozen=True, slots=True)
class HandOut:
    """One message for this worker, until `until_ms` by the broker's clock."""

    message: ReceivedMessage
    receipt: bytes
    attempt: int
    until_ms: int


def receive(
    topic: str, group: str, client_id: str, max_messages: int, invisible_s: float, wait_s: float
) -> Operation[list[HandOut]]:
    request = wire_message(
        pb.ReceiveRequest,
        topic=topic,
        group=group,
        client_id=client_id,
        max_messages=max_messages,
        invisible_ms=round(invisible_s * 1_000),
        wait_ms=round(wait_s * 1_000),
    )

    def result(response: pb.ReceiveResponse) -> list[HandOut]:
        return [
            HandOut(ReceivedMessage(one.frame), one.receipt, one.attempt, one.invisible_until_ms)
            for one in response.messages
        ]

    return Operation(METHODS["Receive"], request, result, wait_s=wait_s)


def settle(
    method: str, topic: str, group: str, receipts: Sequence[bytes], invisible_s: float = 0
) -> Operation[list[bytes]]:
    """The receipts that replace the given ones. ExpiredReceiptError names what was refused; the
    others are settled."""
    request = wire_message(
        pb.SettleRequest,
        topic=topic,
        group=group,
        receipts=list(receipts),
        invisible_ms=round(invisible_s * 1_000),
    )

    def result(response: pb.SettleResponse) -> list[bytes]:
        refused = [one.refusal for one in response.outcomes if one.refusal]
        if refused:
            raise ExpiredReceiptError(
                f"{len(refused)} of {len(response.outcomes)} messages are as they were: "
                + "; ".join(refused[:8])
            )
        return [one.receipt for one in response.outcomes]

    return Operation(METHODS[method], request, result)
