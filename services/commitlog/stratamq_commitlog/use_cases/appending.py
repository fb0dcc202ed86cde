"""Appends: messages given as fields, complete frames, and streams of batches (`append_stream`).

It decides, for every protocol, whose a producer's number is, who may write as a service of the
broker, what would never be delivered, and how many messages one call may have.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stratamq.errors import InvalidRequestError, NotPermittedError
from stratamq.formats.hosts import Host
from stratamq.formats.properties import PGROUP, UNIQ_KEY
from stratamq.service.awaiting import answer
from stratamq.service.caller import Caller
from stratamq.service.entrance import Call
from stratamq_commitlog.messages import Numbers, PutMessage, PutResult
from stratamq_commitlog.use_cases.append_spans import AppendSpans
from stratamq_commitlog.use_cases.append_stream import AppendOpening, AppendStream, check_sequences
from stratamq_commitlog.use_cases.served_log import ServedLog

MAX_OWNERS = 65_536


class Appending:
    """Belongs to the event loop."""

    def __init__(self, log: ServedLog, spans: AppendSpans | None = None) -> None:
        self._log = log
        self._spans = spans
        self._owners = ProducerOwners()
        self._streams: set[AppendStream] = set()
        self._of_senders: dict[int | str, AppendStream] = {}
        """A numbered producer has one, and so has a writer: what still comes in on an older one, a
        producer has sent again on the newer, and a writer decides again."""

    async def messages(
        self,
        call: Call,
        messages: Iterable[PutMessage],
        count: int,
        numbers: Numbers | None = None,
        *,
        all_or_nothing: bool = False,
        require_replicas: bool = False,
    ) -> list[PutResult]:
        """Store `count` messages; a result for each, in their order, once it is safe. They are read
        a few at a time. `numbers`: of the first."""
        log = self._log.get()
        if not count:
            raise InvalidRequestError("no messages")
        require_call_size(count, log.config.max_call_messages)
        if numbers is not None:
            self._owners.require(numbers.producer, call.caller)
            check_sequences(numbers.first, count)
        accepted = _accepted(messages, numbers)
        stored = answer(
            lambda done: log.puts.messages(accepted, all_or_nothing, done, require_replicas)
        )
        return await (stored if self._spans is None else self._spans.call(stored))

    async def raw(self, frames: Sequence[bytes]) -> list[PutResult]:
        """Store complete frames, whatever their transaction bits."""
        log = self._log.get()
        require_call_size(len(frames), log.config.max_call_messages)
        return await answer(lambda done: log.puts.raw(frames, done))

    @contextlib.contextmanager
    def stream(self, call: Call, opening: AppendOpening) -> Iterator[AppendStream]:
        """Open an append stream. It ends an older one of the same producer or writer."""
        log, caller = self._log.get(), call.caller
        self._owners.require(opening.producer, caller)
        if opening.writer:
            # First: one that may not write, or decides in another generation, ends no stream.
            require_service(opening.writer, caller)
        stream = AppendStream(
            log,
            born_host(caller),
            opening,
            self._spans,
            lambda topic: call.require_topics((topic,)),
        )
        sender = stream.sender
        if sender:
            older = self._of_senders.get(sender)
            if older is not None:
                older.supersede()
            self._of_senders[sender] = stream
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            if self._of_senders.get(sender) is stream:
                del self._of_senders[sender]

    def stop(self) -> None:
        """End the streams once what they have in flight is answered."""
        for stream in list(self._streams):
            stream.stop()


def born_host(caller: Caller) -> Host:
    return Host(caller.host or "127.0.0.1", caller.port)


def _accepted(messages: Iterable[PutMessage], numbers: Numbers | None) -> Iterator[PutMessage]:
    """InvalidRequestError for a message that would never be delivered, and for a half message
    without what its producers are found by."""
    for at, message in enumerate(messages):
        if message.half and not (
            message.properties.get(UNIQ_KEY) and message.properties.get(PGROUP)
        ):
            raise InvalidRequestError(
                f"a half message has a unique key and the property {PGROUP}, its producer group"
            )
        if numbers is None:
            yield message
        else:
            yield replace(message, numbers=replace(numbers, first=numbers.first + at))


def require_call_size(count: int, most: int) -> None:
    """InvalidRequestError for more messages than one call may have: nothing of it is looked at."""
    if count > most:
        raise InvalidRequestError(
            f"{count} messages in one call: at most {most} (commitlog.max_call_messages). Make "
            "several calls, or use the append stream"
        )


def require_service(writer: str, caller: Caller) -> None:
    """Whether the caller may write from inside the broker as `writer`. Raises NotPermittedError."""
    if caller.name and not caller.trusted:
        raise NotPermittedError(
            f"{caller.name} may not append as the service {writer!r}: only this broker's services "
            "and members may"
        )


class ProducerOwners:
    """Whose a producer's number is. It lies in every message, so that those who read them know it;
    who sent with another's number would end that producer's stream, and have its next messages
    taken for ones that were sent before.

    The users of the numbers that were used last. Belongs to the event loop.
    """

    def __init__(self) -> None:
        self._users: dict[int, str] = {}
        """The longest unused first."""

    def require(self, producer: int, caller: Caller) -> None:
        """Give the number to the caller unless it has an owner. Services of the broker and members
        may use any number. Raises NotPermittedError if another user owns it."""
        if not producer or not caller.name:
            return
        user = self._users.pop(producer, caller.name)
        if caller.trusted:
            user = caller.name
        self._users[producer] = user
        if len(self._users) > MAX_OWNERS:
            del self._users[next(iter(self._users))]
        if user != caller.name:
            raise NotPermittedError(
                f"{caller.name} may not send with this producer's number: another user does"
            )
