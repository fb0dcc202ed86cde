# Generated from _async/lookup.py by scripts/gen_sync_client.py (`make client`).
"""One message by any of its names, and everything that the broker's services know about it."""

import contextlib

from stratamq.client import forks, operations
from stratamq.client._sync.brokers import Brokers
from stratamq.client._sync.calls import run_plan
from stratamq.client._sync.frame_reads import log_frames
from stratamq.client.checking import checked
from stratamq.client.received import ReceivedMessage, split_frames
from stratamq.client.where import (
    MAX_WAITING,
    WAITING_TOPICS,
    plan_delivery,
    plan_where,
    queue_place,
    waiting_for,
)
from stratamq.client.whereabouts import DeliveryOutlook, Whereabouts
from stratamq.errors import (
    CorruptionError,
    NotFoundError,
    NotPermittedError,
    OffsetOutOfRangeError,
)
from stratamq.formats.message_id import decode_message_id


@checked
class Lookup:
    """Looks at one message: `Client.lookup`. For a single broker, chosen by its name. Reads by
    no group, so that no offset moves."""

    def __init__(self, brokers: Brokers, timeout_s: float) -> None:
        forks.watch(self)
        self._whole = brokers.whole
        self._timeout_s = timeout_s

    def at(self, physical_offset: int) -> ReceivedMessage:
        """Return the message that begins at an offset of the log, also one that was purged or whose
        topic was deleted. OffsetOutOfRangeError; NotFoundError when no message begins there."""
        try:
            return self._whole.run(operations.message_at(physical_offset))
        except NotFoundError as error:
            found = self._hidden(physical_offset)
            if found is None:
                raise error from None
            return found

    def _hidden(self, physical_offset: int) -> ReceivedMessage | None:
        """The message at an offset that consumers are not given. None: none begins there, and what
        is there looks like damage to who reads the log from it."""
        frames = log_frames(self._whole.connections, physical_offset, 0, self._timeout_s)
        try:
            with contextlib.closing(frames):
                for _, data in frames:
                    for message in split_frames(data):
                        return message
        except CorruptionError:
            pass
        return None

    def by_id(self, message_id: str) -> ReceivedMessage:
        """Return the message of an offset message id, also one that was purged. NotFoundError when
        another broker's message is there."""
        _, physical_offset = decode_message_id(message_id.strip())
        message = self.at(physical_offset)
        if message.message_id != message_id.strip().upper():
            raise NotFoundError(f"the message at {physical_offset} has the id {message.message_id}")
        return message

    def in_queue(self, topic: str, queue_id: int, queue_offset: int) -> ReceivedMessage:
        """Return a queue's message at an offset, also one that was purged, or that the tier has
        alone. NotFoundError."""
        run = self._whole.run
        place = run(queue_place(topic, queue_id, queue_offset))
        if place.unit is not None:
            # Who may consume and not scan reads what consumers get.
            with contextlib.suppress(OffsetOutOfRangeError, NotPermittedError):
                return self.at(place.unit.physical_offset)
        pulled = run(operations.pull(topic, queue_id, queue_offset, max_messages=1))
        for message in pulled.messages:
            if message.queue_offset == queue_offset:
                return message
        known = f"it has {pulled.min_offset} up to {pulled.max_offset - 1}"
        if pulled.max_offset <= pulled.min_offset:
            known = "it has none"
        raise NotFoundError(f"queue {queue_id} of {topic} has no message {queue_offset}: {known}")

    def waiting(self, topic: str, key: str) -> ReceivedMessage | None:
        """Return the first message with a key that waits for its delivery to a topic: delayed, or
        the half of a transaction. Those that the caller may not query are passed over."""
        for place in WAITING_TOPICS:
            asked = operations.query_key(place, key, max_messages=MAX_WAITING)
            with contextlib.suppress(NotPermittedError, NotFoundError):
                for message in (self._whole.run(asked)).messages:
                    if waiting_for(message) == topic:
                        return message
        return None

    def delivery(self, message: ReceivedMessage) -> DeliveryOutlook | None:
        """Return to which topic a message of the topics of waiting ones goes, when, and where it
        was delivered, if it was. None of any other message."""
        return run_plan(self._whole.run_soon, plan_delivery(message))

    def where(self, message: ReceivedMessage) -> Whereabouts:
        """Return where a message of this broker is, who has read it, and when retention takes it at
        the latest. What a service does not answer soon is missing, and a note says why."""
        return run_plan(self._whole.run_soon, plan_where(message))
