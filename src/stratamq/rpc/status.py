"""The one table between errors and gRPC statuses, in both directions.

An error crosses the wire as a status code, its sentence as the status message, and in trailing
metadata `stratamq-error` (a name that never changes) and `stratamq-error-fields` (a JSON object).
Errors that are not in the table are bugs: logged with their traceback, reported to the caller
without their message.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from stratamq.errors import (
    BusyError,
    ConfigurationError,
    CorruptionError,
    CorruptRecordError,
    DecidedTransactionError,
    DeliveryTimeError,
    ExpiredReceiptError,
    ForkedClientError,
    InvalidRequestError,
    LostMessagesError,
    NotFoundError,
    NotPermittedError,
    NotWritableError,
    OffsetOutOfRangeError,
    StoreRefusedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
)
from stratamq.rpc.request_ids import ERROR_KEY, current, one_request, valid_id

log = logging.getLogger(__name__)

NAME_KEY = "stratamq-error"
FIELDS_KEY = "stratamq-error-fields"

# gRPC's peers accept 8 KiB of metadata with a response, the percent-encoded message included.
MESSAGE_LIMIT_BYTES = 3 * 1024
FIELDS_LIMIT_BYTES = 3 * 1024

Metadata = tuple[tuple[str, str], ...]
Status = tuple[grpc.StatusCode, str, Metadata]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Row:
    error: type[StrataError]
    name: str
    code: grpc.StatusCode
    rebuild: Callable[[str, Fields], StrataError]


# The names travel on the wire and never change.
_TABLE = (
    _Row(
        InvalidRequestError,
        "INVALID_REQUEST",
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda message, _: InvalidRequestError(message),
    ),
    _Row(
        ForkedClientError,
        "FORKED_CLIENT",
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda message, _: ForkedClientError(message),
    ),
    _Row(
        DeliveryTimeError,
        "DELIVERY_TIME",
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda message, _: DeliveryTimeError(message),
    ),
    _Row(
        ExpiredReceiptError,
        "EXPIRED_RECEIPT",
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda message, _: ExpiredReceiptError(message),
    ),
    _Row(
        DecidedTransactionError,
        "DECIDED_TRANSACTION",
        grpc.StatusCode.FAILED_PRECONDITION,
        lambda message, _: DecidedTransactionError(message),
    ),
    _Row(
        NotFoundError,
        "NOT_FOUND",
        grpc.StatusCode.NOT_FOUND,
        lambda message, _: NotFoundError(message),
    ),
    _Row(
        OffsetOutOfRangeError,
        "OFFSET_OUT_OF_RANGE",
        grpc.StatusCode.OUT_OF_RANGE,
        lambda message, fields: OffsetOutOfRangeError(
            message, _integer(fields, "minimum", 0), _integer(fields, "maximum", 0)
        ),
    ),
    _Row(
        NotWritableError,
        "NOT_WRITABLE",
        grpc.StatusCode.FAILED_PRECONDITION,
        lambda message, fields: NotWritableError(
            message, str(fields.get("reason", "")), str(fields.get("master", ""))
        ),
    ),
    _Row(
        NotPermittedError,
        "NOT_PERMITTED",
        grpc.StatusCode.PERMISSION_DENIED,
        lambda message, _: NotPermittedError(message),
    ),
    _Row(
        UnauthenticatedError,
        "UNAUTHENTICATED",
        grpc.StatusCode.UNAUTHENTICATED,
        lambda message, _: UnauthenticatedError(message),
    ),
    _Row(
        BusyError,
        "BUSY",
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        lambda message, fields: BusyError(message, _integer(fields, "retry_after_ms", 1000)),
    ),
    _Row(
        UnavailableError,
        "UNAVAILABLE",
        grpc.StatusCode.UNAVAILABLE,
        lambda message, _: UnavailableError(message),
    ),
    _Row(
        CorruptRecordError,
        "CORRUPT_RECORD",
        grpc.StatusCode.DATA_LOSS,
        lambda message, fields: CorruptRecordError(
            message, _integer(fields, "position", -1), str(fields.get("reason", ""))
        ),
    ),
    _Row(
        LostMessagesError,
        "LOST_MESSAGES",
        grpc.StatusCode.DATA_LOSS,
        lambda message, fields: LostMessagesError(
            message, _integer(fields, "first", -1), _integer(fields, "end", -1)
        ),
    ),
    _Row(
        CorruptionError,
        "CORRUPTION",
        grpc.StatusCode.DATA_LOSS,
        lambda message, fields: CorruptionError(
            message, str(fields.get("file", "")), _integer(fields, "position", -1)
        ),
    ),
    _Row(
        ConfigurationError,
        "CONFIGURATION",
        grpc.StatusCode.FAILED_PRECONDITION,
        lambda message, fields: ConfigurationError(_sentences(fields, "faults", message)),
    ),
    _Row(
        StoreRefusedError,
        "STORE_REFUSED",
        grpc.StatusCode.FAILED_PRECONDITION,
        lambda message, _: StoreRefusedError(message),
    ),
)
_BY_CLASS = {row.error: row for row in _TABLE}
_BY_NAME = {row.name: row for row in _TABLE}

# Statuses that gRPC itself or a proxy made, without our metadata.
_BY_CODE: dict[grpc.StatusCode, type[StrataError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequestError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: NotWritableError,
    grpc.StatusCode.PERMISSION_DENIED: NotPermittedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BusyError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    # No answer came: as after any lost answer, the request may have been carried out.
    grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.DATA_LOSS: CorruptionError,
}


def to_status(error: BaseException) -> Status:
    """Status code, message and trailing metadata for `error`.

    Side effect: damage is logged as an error, and anything that is not in the table is logged with
    its traceback under the request's id, which the message repeats.
    """
    error = _representative(error)
    row = _row(error)
    if row is not None and isinstance(error, StrataError):
        if isinstance(error, CorruptionError):
            known = {f"field_{name}": value for name, value in error.fields.items()}
            log.error("damaged bytes found", extra={"error": error.message, **known})
        metadata = ((NAME_KEY, row.name), (FIELDS_KEY, encode_fields(error.fields)))
        return row.code, _bounded(error.message), metadata
    if _is_deadline(error):
        message = "the time allowed for the request passed; nothing was done"
        return grpc.StatusCode.DEADLINE_EXCEEDED, message, ((NAME_KEY, "DEADLINE_EXCEEDED"),)
    if isinstance(error, NotImplementedError):  # what generated servicers raise
        message = "the service does not offer this call"
        return grpc.StatusCode.UNIMPLEMENTED, message, ((NAME_KEY, "UNIMPLEMENTED"),)
    with one_request() as request:
        log.error("unexpected error in a call", exc_info=error)
    message = f"internal error of request {request.id}: the log of the service has more"
    return grpc.StatusCode.INTERNAL, message, ((NAME_KEY, "INTERNAL"),)


def from_rpc_error(error: grpc.RpcError) -> StrataError:
    """The error that the service raised, same class, message and fields.

    Statuses that did not come from a StrataMQ service become the nearest class, with the field
    `status`; a deadline is an UnavailableError with `status` DEADLINE_EXCEEDED, because the request
    may have been carried out; INTERNAL and the like are plain StrataErrors.
    """
    rebuilt = _rebuilt(error)
    request = current()
    sent = "" if request is None else request.id
    rebuilt.request_id = valid_id(_text_metadata(error).get(ERROR_KEY)) or sent
    return rebuilt


def _rebuilt(error: grpc.RpcError) -> StrataError:
    code = error.code() if hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    message = (error.details() if hasattr(error, "details") else str(error)) or code.name
    metadata = _text_metadata(error)
    row = _BY_NAME.get(metadata.get(NAME_KEY, ""))
    if row is not None:
        fields = decode_fields(metadata.get(FIELDS_KEY))
        rebuilt = row.rebuild(message, fields)
        rebuilt.fields.update(fields)
        return rebuilt
    status = code.name
    if code is grpc.StatusCode.OUT_OF_RANGE:
        rebuilt = OffsetOutOfRangeError(message, 0, 0)
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message:
        rebuilt = InvalidRequestError(message)  # gRPC's own size limit: no retry will help
    else:
        rebuilt = _BY_CODE.get(code, StrataError)(message)
    rebuilt.fields["status"] = status
    return rebuilt


def never_sent(error: StrataError) -> bool:
    """No connection could be made: the request has not left this process, and nothing was done."""
    if error.fields.get("never_sent"):
        return True
    return error.fields.get("status") == "UNAVAILABLE" and error.message.startswith(
        "failed to connect to all addresses"
    )


def code_of(error: BaseException) -> grpc.StatusCode:
    """The status that `to_status` gives it; CANCELLED where the caller went away."""
    if not isinstance(error, Exception):
        return grpc.StatusCode.CANCELLED
    error = _representative(error)
    row = _row(error)
    if row is not None:
        return row.code
    if _is_deadline(error):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    unknown = isinstance(error, NotImplementedError)
    return grpc.StatusCode.UNIMPLEMENTED if unknown else grpc.StatusCode.INTERNAL


def error_name(error: BaseException) -> str:
    """The name under which `error` travels in band, in a field of a response."""
    row = _row(error)
    return "INTERNAL" if row is None else row.name


def error_named(name: str, message: str, fields: Fields) -> StrataError:
    """The error that came in band; a plain StrataError for a name that is not known here."""
    row = _BY_NAME.get(name)
    rebuilt = StrataError(message) if row is None else row.rebuild(message, fields)
    rebuilt.fields.update(fields)
    return rebuilt


def _row(error: BaseException) -> _Row | None:
    """A room's own subclass travels as its nearest ancestor in the table."""
    return next((_BY_CLASS[cls] for cls in type(error).__mro__ if cls in _BY_CLASS), None)


def _representative(error: BaseException) -> BaseException:
    """Choose one error of a group from a TaskGroup: the first that is not in the table, else the
    first."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if _row(leaf) is None), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _is_deadline(error: BaseException) -> bool:
    # An OSError with ETIMEDOUT is a TimeoutError as well, and nothing that a caller asked for.
    return isinstance(error, TimeoutError) and error.errno is None


def _bounded(message: str) -> str:
    """Valid UTF-8 that stays within the limit when gRPC percent-encodes it."""
    kept: list[str] = []
    size = 0
    for character in message:
        encoded = character.encode("utf-8", "replace")
        size += (
            len(encoded) if character.isascii() and character.isprintable() else len(encoded) * 3
        )
        if size > MESSAGE_LIMIT_BYTES:
            return "".join(kept) + " ..."
        kept.append(encoded.decode())
    return "".join(kept)


def encode_fields(fields: Fields) -> str:
    """JSON, ASCII; the largest fields are left out (and `truncated` set) until it fits."""
    texts = {str(name): json.dumps(value, default=str) for name, value in fields.items()}
    if sum(len(name) + len(text) for name, text in texts.items()) > FIELDS_LIMIT_BYTES:
        texts = {name: text for name, text in texts.items() if len(name) + len(text) <= 128}
        texts = dict(list(texts.items())[: FIELDS_LIMIT_BYTES // 256]) | {"truncated": "true"}
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items()) + "}"


def decode_fields(text: str | None) -> Fields:
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _text_metadata(error: grpc.RpcError) -> dict[str, str]:
    pairs = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    return {key: value for key, value in pairs or () if isinstance(value, str)}


def _integer(fields: Fields, name: str, default: int) -> int:
    value = fields.get(name, default)
    return value if isinstance(value, int) else default


def _sentences(fields: Fields, name: str, message: str) -> list[str]:
    value = fields.get(name)
    return [str(sentence) for sentence in value] if isinstance(value, list) else [message]
