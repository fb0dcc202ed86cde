"""Messages that the log has no more, found by their keys in the broker's tier.

The log's answer comes first. The tier is asked for what may be missing from it: older messages,
unless there are enough. A message that is in both is given once, as the log has it.
"""

import logging

from stratamq.errors import StrataError
from stratamq.follow.tier import TierCalls, TierKeyMessages
from stratamq.formats import frame_layout as layout
from stratamq.formats.frame_layout import I32, I64
from stratamq.rpc.request_ids import part
from stratamq_index.query import MAX_ANSWER_BYTES, MAX_MESSAGES, KeyQuery, QueryAnswer

log = logging.getLogger(__name__)

Placed = tuple[int, bytes]
"""A record and its physical offset: in the log, or in its queue's tier file."""


class TierQueries:
    """Belongs to the event loop. `calls` None: no tier is asked. `expected`: the broker has one,
    also before it was met."""

    def __init__(self, calls: TierCalls | None, *, expected: bool = False) -> None:
        self._calls = calls
        self._known = expected

    async def complete(self, question: KeyQuery, local: QueryAnswer) -> tuple[QueryAnswer, str]:
        """The log's answer with what the tier has beside it; and why something may be missing,
        empty: nothing is."""
        if self._calls is None or (local.truncated and not question.oldest_first):
            return local, ""
        # Of the messages that are asked for, as many may be in the log as were found there.
        wanted = question.max_messages + (0 if question.oldest_first else len(local.frames))
        end_ms = question.end_ms if question.end_ms is not None else _no_end(question)
        try:
            with part("tier query", topic=question.topic):
                found = await self._calls.messages_of_key(
                    question.topic,
                    question.key,
                    most_messages=min(wanted, 2 * MAX_MESSAGES),
                    begin_ms=question.begin_ms,
                    end_ms=end_ms,
                    oldest_first=question.oldest_first,
                    unique_only=question.unique_only,
                )
        except StrataError as error:
            if not self._known:
                return local, ""
            log.warning("tier not searched for a key", extra={"reason": str(error)})
            return local, str(error)
        self._known = True
        missing = ""
        if found.queues_behind:
            missing = (
                f"{found.queues_behind} queues of {question.topic} in the tier are not indexed up "
                "to their end yet"
            )
        return _merged(question, local, found), missing


_NO_END = 1 << 62


def _no_end(question: KeyQuery) -> int:
    """0 where the beginning is 0 too: all times."""
    return _NO_END if question.begin_ms else 0


def _merged(question: KeyQuery, local: QueryAnswer, found: TierKeyMessages) -> QueryAnswer:
    """Messages that only the tier has are older than all of the log's."""
    of_log = {_identity(frame): (offset, frame) for offset, frame in local.frames}
    at = layout.PHYSICAL_OFFSET_POSITION
    of_tier = {_identity(one): (I64.unpack_from(one, at)[0], one) for one in found.records}
    colder = [one for name, one in of_tier.items() if name not in of_log]
    if not question.oldest_first:
        frames = [*local.frames, *colder]
    elif found.truncated:
        # What the tier gave may end before the log's first message.
        frames = [of_log.get(name, one) for name, one in of_tier.items()]
    else:
        frames = [*colder, *local.frames]
    kept = _bounded(frames[: question.max_messages])
    return QueryAnswer(kept, len(kept) < len(frames) or found.truncated or local.truncated)


def _bounded(frames: list[Placed]) -> list[Placed]:
    """One at least, whatever its size."""
    size = 0
    for count, (_, frame) in enumerate(frames):
        size += len(frame)
        if count and size > MAX_ANSWER_BYTES:
            return frames[:count]
    return frames


def _identity(record: bytes) -> tuple[int, int]:
    """Queue id and queue offset."""
    queue_id: int = I32.unpack_from(record, layout.QUEUE_ID_POSITION)[0]
    offset: int = I64.unpack_from(record, layout.QUEUE_OFFSET_POSITION)[0]
    return queue_id, offset
