"""Which messages of a batch of ready frames their topics take: by permission, queue and type."""

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import groupby

import numpy as np

from stratamq.errors import (
    CorruptRecordError,
    InvalidRequestError,
    NotWritableError,
    StrataError,
)
from stratamq.formats.columns import frame_columns
from stratamq.formats.message_status import SendStatus
from stratamq.formats.topic_types import MessageType, types_of
from stratamq.formats.topics import ANY_QUEUE
from stratamq.rpc.refusals import Refusal, is_of_one_message
from stratamq_commitlog.messages import FrameBatch
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

_NEVER_READY = (MessageType.DELAY, MessageType.TRANSACTION)
"""What a producer sends as fields: the log makes the frame of a message that waits."""


def check_topics(
    batch: FrameBatch, topics: TopicTable, permit: Callable[[str], None]
) -> tuple[list[TopicConfig], list[Refusal]]:
    """The topics of messages that are taken, new ones among them, and which messages are not, by
    their topics, queues and types. `permit` raises NotPermittedError. Raises NotWritableError when
    the broker takes none."""
    own = batch.fence is not None
    known: dict[str, TopicConfig | StrataError] = {}
    taken: dict[str, TopicConfig] = {}
    refusals: list[Refusal] = []
    first = 0
    for run in batch.runs:
        found = known.get(run.topic)
        if found is None:
            found = known[run.topic] = _topic(run.topic, topics, permit, own=own)
        if isinstance(found, TopicConfig) and (
            not 0 <= run.queue_id < found.write_queues and run.queue_id != ANY_QUEUE
        ):
            last = found.write_queues - 1
            found = InvalidRequestError(
                f"topic {run.topic} has queues 0 to {last}, no {run.queue_id}"
            )
        if isinstance(found, TopicConfig):
            taken[run.topic] = found
        else:
            refusals.append(Refusal(first, run.count, refused_status(found), found))
        first += run.count
    if not own:  # a copy has the properties of the message that waited
        refusals += _wrong_types(batch, taken.values(), {one.first for one in refusals})
        refusals.sort(key=lambda one: one.first)
    return list(taken.values()), refusals


def _topic(
    name: str, topics: TopicTable, permit: Callable[[str], None], *, own: bool
) -> TopicConfig | StrataError:
    try:
        permit(name)
        return topics.writable(name, own=own)
    except StrataError as error:
        if not is_of_one_message(error):
            raise
        return error


def refused_status(error: StrataError) -> SendStatus:
    """RocketMQ's status for what is refused before it waits to be appended."""
    if isinstance(error, NotWritableError):
        return SendStatus.SERVICE_NOT_AVAILABLE
    return SendStatus.MESSAGE_ILLEGAL


def _wrong_types(
    batch: FrameBatch, taken: Iterable[TopicConfig], refused: Container[int]
) -> Iterator[Refusal]:
    """Messages of other types than their topics take. Nothing is looked at for topics that take
    all. `refused`: where runs begin that are not taken.

    Where frames are none, nothing of such a topic is taken.
    """
    typed = {one.topic: one.message_type for one in taken if not one.message_type.takes_all}
    if not typed:
        return
    try:
        frames = frame_columns(np.frombuffer(batch.frames, np.uint8), batch.lengths)
    except CorruptRecordError as error:
        yield from _unread(batch, typed, refused, error)
        return
    starts, ends = frames.properties_start.tolist(), (frames.start + frames.size).tolist()
    first = 0
    for run in batch.runs:
        wanted, rows = typed.get(run.topic), slice(first, first + run.count)
        first += run.count
        if wanted is None or rows.start in refused:
            continue
        bounds = zip(starts[rows], ends[rows], strict=True)
        texts = [bytes(batch.frames[start:end]) for start, end in bounds]
        types, is_ready = types_of(texts), wanted not in _NEVER_READY
        if is_ready and types.count(wanted) == len(types):
            continue
        number = rows.start
        for found, same in groupby(types):
            count = len([*same])
            if not (is_ready and found is wanted):
                sentence = f"frame {number}: {wrong_type(run.topic, wanted, found)}"
                refusal = InvalidRequestError(sentence, frame=number, reason="message_type")
                yield Refusal(number, count, SendStatus.MESSAGE_ILLEGAL, refusal)
            number += count


def _unread(
    batch: FrameBatch, typed: Container[str], refused: Container[int], why: CorruptRecordError
) -> Iterator[Refusal]:
    """All of topics with a type: what types the messages have cannot be read."""
    sentence = f"frame {why.fields['frame']}: {why.message}"
    error = InvalidRequestError(sentence, frame=why.fields["frame"], reason=why.reason)
    first = 0
    for run in batch.runs:
        if run.topic in typed and first not in refused:
            yield Refusal(first, run.count, SendStatus.MESSAGE_ILLEGAL, error)
        first += run.count


def wrong_type(topic: str, wanted: MessageType, found: MessageType) -> str:
    if found is wanted:
        return (
            f"topic {topic} takes {wanted} messages, and a ready frame is none: it is stored as is"
        )
    return f"topic {topic} takes {wanted} messages, and this is of the type {found}"
