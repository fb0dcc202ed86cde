"""Every error StrataMQ raises on purpose. The class determines who must act.

    StrataError
    ├── InvalidRequestError      the caller must change the request
    │   ├── ForkedClientError    the client is of the process that this one was forked from
    │   ├── DeliveryTimeError    the message is to be delivered later than the log can wait
    │   ├── ExpiredReceiptError  the message was handed out again, or is finished
    │   └── DecidedTransactionError  the transaction was decided the other way
    ├── NotFoundError            no such topic, queue, key or segment
    ├── OffsetOutOfRangeError    outside what is kept; carries minimum and maximum
    ├── NotWritableError         the store is in the wrong state (replica, read-only, closed)
    ├── NotPermittedError        forbidden to the caller; an operator may change a permission
    ├── UnauthenticatedError     the caller must show who it is: a token, or a certificate
    ├── BusyError                come back after retry_after_ms (back-pressure, disk full)
    ├── UnavailableError         starting, stopping, unreachable
    ├── CorruptionError          acknowledged bytes are damaged; an operator must act
    │   ├── CorruptRecordError   raised by codecs: the bytes at this place are not a record
    │   └── LostMessagesError    messages of a queue are nowhere any more; carries first and end
    ├── ConfigurationError       the operator must change a setting; raised at start only
    └── StoreRefusedError        the directory cannot be served as it is; raised at start only

`rpc/status.py` maps each class to one gRPC status and back. *Stored, but the flush or a replica
timed out* is no error: it is a `SendStatus`, `SendStatus` for clients, beside the result.
"""


class StrataError(Exception):
    """Base of every deliberate error. `fields` travel with it across gRPC.

    `request_id`: of one that a call raised, under which the service's log has the call, if it has
    it (`stratamq logs --request`); "": not known."""

    request_id = ""

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return self.message

    def fresh_copy(self) -> "StrataError":
        """An equal error, to raise where this one is kept. An error that is kept and raised holds
        whatever its callers had in hand, megabytes of bodies, until the collector finds it."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        made.__cause__ = self.__cause__
        return made


class InvalidRequestError(StrataError):
    """The request can never succeed as it is: size, topic, properties, encoding."""


class ForkedClientError(InvalidRequestError):
    """The client was made before a fork: the child must make its own. Or gRPC cannot be used in a
    child, because its parent had an asyncio client."""


class DeliveryTimeError(InvalidRequestError):
    """The message is to be delivered later than the log lets one wait
    (`commitlog.timer_max_delay_ms`)."""


class ExpiredReceiptError(InvalidRequestError):
    """A receipt that is good no more: the message is finished, was handed out again, or its time is
    over. Nothing was changed."""


class DecidedTransactionError(InvalidRequestError):
    """The transaction was committed, rolled back or given up before, and that stands."""


class NotFoundError(StrataError):
    """The thing asked for does not exist."""


class OffsetOutOfRangeError(StrataError):
    """An offset outside what is kept. `minimum` and `maximum` bound what can be asked for."""

    def __init__(self, message: str, minimum: int, maximum: int) -> None:
        super().__init__(message, minimum=minimum, maximum=maximum)
        self.minimum = minimum
        self.maximum = maximum


class NotWritableError(StrataError):
    """The store does not take writes in its present state; `reason` names the state.

    `master` is where clients reach the log that takes them instead; "": not known.
    """

    def __init__(self, message: str, reason: str = "", master: str = "") -> None:
        super().__init__(message, reason=reason)
        self.reason = reason
        self.master = master
        if master:
            self.fields["master"] = master


class NotPermittedError(StrataError):
    """What was asked for is there, and forbidden; an operator may change a permission."""


class UnauthenticatedError(StrataError):
    """The service asks who calls, and nothing was shown that it knows."""


class BusyError(StrataError):
    """Nothing was done; the same request may succeed after `retry_after_ms`."""

    def __init__(self, message: str, retry_after_ms: int = 1000) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)
        self.retry_after_ms = retry_after_ms


class UnavailableError(StrataError):
    """The service is starting, stopping or cannot be reached.

    After an append that was sent this means *perhaps stored* (field `perhaps_stored`).
    """


class CorruptionError(StrataError):
    """Bytes that were acknowledged are damaged. At `position` of `file`."""

    def __init__(self, message: str, file: str = "", position: int = -1) -> None:
        super().__init__(message, file=file, position=position)
        self.file = file
        self.position = position


class CorruptRecordError(CorruptionError):
    """The bytes at `position` of a buffer are not a record of the expected kind.

    `reason` is one constant word of the codec that raised it (`magic`, `length`, `body_crc`, …).
    """

    def __init__(self, message: str, position: int, reason: str) -> None:
        super().__init__(message, position=position)
        self.reason = reason
        self.fields["reason"] = reason


class LostMessagesError(CorruptionError):
    """Messages that were acknowledged are neither in the log nor in the tier: queue offsets
    [first, end). Who reads on at `end` has passed them over."""

    def __init__(self, message: str, first: int, end: int) -> None:
        super().__init__(message)
        self.first = first
        self.end = end
        self.fields.update(first=first, end=end)

    @classmethod
    def of_queue(cls, topic: str, queue_id: int, first: int, end: int) -> "LostMessagesError":
        return cls(
            f"queue {queue_id} of {topic}: the messages at offsets {first} to {end} are lost: the "
            "tier was put back to an older copy or misses objects, and the log has them no more. "
            f"Restore the tier's objects, or read on behind them, from offset {end}; "
            f"`stratamq topics purge {topic} --queue {queue_id} --before {end}` gives them up for "
            "all readers",
            first,
            end,
        )


class ConfigurationError(StrataError):
    """Settings are wrong; `faults` lists all of them, a sentence each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults), faults=faults)
        self.faults = faults


class StoreRefusedError(StrataError):
    """The directory cannot be served; the message has the reason and what to do. Nothing was
    changed."""
