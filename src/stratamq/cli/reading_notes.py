"""What a reader is to know besides the messages: lines on standard error."""

import sys
from collections.abc import Collection

from stratamq.client import AtTime, Client, Queue
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.formats.topic_pattern import TopicPattern

_NAMED = 4
"""Queues in a sentence."""


def note(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def note_interruption(error: StrataError | None) -> None:
    if error is None:
        note("reading again")
    else:
        note(f"reading was interrupted, retrying: {' '.join(str(error).split())}")


def note_send_interruption(error: StrataError | None) -> None:
    if error is None:
        note("sending again")
    else:
        sentence = " ".join(str(error).split())
        note(f"sending was interrupted, retrying for two minutes: {sentence}")


def require_queues(client: Client, topics: Collection[str], queue_ids: Collection[int]) -> None:
    """NotFoundError for a queue that a topic does not have."""
    for topic in topics if queue_ids else ():
        known = {queue.queue_id for queue in client.queues(topic)}
        if known >= set(queue_ids):
            continue
        count = max((one.read_queue_count for one in client.topics(topic)), default=0)
        missing = sorted(set(queue_ids) - known - set(range(count)))
        if missing and (known or count):
            raise NotFoundError(
                f"{topic} has {count} queues, numbered from 0: there is no queue {missing[0]}"
            )


def check_group(client: Client, group: str, topics: Collection[str], offset: str | None) -> None:
    """InvalidRequestError for an offset of a group that has one already; a group that is new to a
    topic is mentioned."""
    committed = client.topics_of_group(group)
    for topic in topics:
        known = topic in committed
        if known and offset is not None:
            raise InvalidRequestError(
                f"group {group} already has offsets for {topic}, and continues there: omit "
                f"--offset, or run `stratamq groups reset {group} --topic {topic} --to {offset}`"
            )
        if not known:
            note(
                f"group {group} has no offsets for {topic} yet: starting at {offset or 'earliest'}"
            )


def matching(client: Client, pattern: TopicPattern, *, follow: bool) -> list[str]:
    """The topics that there are by now; a reader that follows waits for the first."""
    names = sorted({one.name for one in client.topics() if pattern.fullmatch(one.name)})
    if not names and follow:
        note(f"no topic matches {pattern.pattern} yet: waiting")
    return names


def note_missing(client: Client, topics: Collection[str]) -> None:
    """For a reader that follows: it waits for topics that are not there yet."""
    for topic in topics:
        try:
            if not client.queues(topic) and not client.topics(topic):
                note(f"there is no topic {topic} yet: waiting for it")
        except UnavailableError as error:
            note(str(error))


def note_bounds(
    client: Client,
    topics: Collection[str],
    queue_ids: Collection[int],
    start: str | int | AtTime,
    until: int | AtTime | None,
) -> bool:
    """Mention queues that do not hold the offset at which reading begins or ends; True when there
    is one that begins beyond its end."""
    beyond_any = False
    if not (isinstance(start, int) or isinstance(until, int)):
        return False
    for topic in topics:
        queues = [one for one in client.queues(topic) if not queue_ids or one.queue_id in queue_ids]
        if isinstance(start, int):
            beyond = [one for one in queues if start > one.max_offset]
            deleted = [one for one in queues if 0 <= start < one.min_offset]
            beyond_any |= bool(beyond)
            if beyond:
                note(f"offset {start} is beyond the end of {topic}: {_named(beyond, 'ends')}")
            if deleted:
                note(f"offset {start} of {topic} was deleted: {_named(deleted, 'begins')}")
        if isinstance(until, int):
            short = [one for one in queues if until > one.max_offset]
            if short:
                note(f"{topic} ends before --until {until}: {_named(short, 'ends')}")
    return beyond_any


def _named(queues: Collection[Queue], verb: str) -> str:
    places = []
    for one in sorted(queues, key=lambda one: (one.broker, one.queue_id)):
        where = f" of broker {one.broker}" if one.broker else ""
        offset = one.max_offset if verb == "ends" else one.min_offset
        places.append(f"queue {one.queue_id}{where} {verb} at {offset}")
    more = [f"{len(places) - _NAMED} more"] if len(places) > _NAMED else []
    return ", ".join(places[:_NAMED] + more)
