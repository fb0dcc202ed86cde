"""RocketMQ 5's status codes, and which of them an error becomes. `spec/gateway.md` 4."""

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.errors import (
    BusyError,
    DecidedTransactionError,
    DeliveryTimeError,
    ExpiredReceiptError,
    InvalidRequestError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    OffsetOutOfRangeError,
    StrataError,
    UnauthenticatedError,
)
from stratamq.formats.message_status import SendStatus


class RefusedError(InvalidRequestError):
    """A request that has a status code of its own."""

    def __init__(self, code: pb.Code, message: str) -> None:
        super().__init__(message)
        self.code = code


SENT = {
    SendStatus.PUT_OK: pb.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
}
"""Answers for a message that is stored."""

_ERRORS: tuple[tuple[type[StrataError], pb.Code], ...] = (
    (UnauthenticatedError, pb.UNAUTHORIZED),
    (NotPermittedError, pb.FORBIDDEN),
    (NotFoundError, pb.TOPIC_NOT_FOUND),
    (OffsetOutOfRangeError, pb.ILLEGAL_OFFSET),
    (DeliveryTimeError, pb.ILLEGAL_DELIVERY_TIME),
    (ExpiredReceiptError, pb.INVALID_RECEIPT_HANDLE),
    (DecidedTransactionError, pb.INVALID_TRANSACTION_ID),
    (BusyError, pb.TOO_MANY_REQUESTS),
    (InvalidRequestError, pb.BAD_REQUEST),
)


def code_of(error: StrataError) -> pb.Code:
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, NotWritableError) and error.reason == "permission":
        return pb.FORBIDDEN  # of the topic
    for kind, code in _ERRORS:
        if isinstance(error, kind):
            return code
    return pb.INTERNAL_SERVER_ERROR


def status(code: pb.Code, message: str = "") -> pb.Status:
    return pb.Status(code=code, message=message or pb.Code.Name(code))


def common_status(statuses: list[pb.Status]) -> pb.Status:
    """That of a request whose parts have these."""
    first = statuses[0]
    return first if all(one.code == first.code for one in statuses) else status(pb.MULTIPLE_RESULTS)
