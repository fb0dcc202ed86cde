"""Adding and removing shards: the topics that a new one lacks, the messages of one still unread.

No I/O: lists of all shards in, lists of what is left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stratamq.client.values import GroupQueue, Queue, Topic
from stratamq.formats.topics import (
    HALF_TOPIC,
    PERMISSION_WRITE,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Drain,
    drain_of,
    is_system_topic,
)

_WAITING = {SCHEDULE_TOPIC: "delayed", TIMER_TOPIC: "delayed", HALF_TOPIC: "half"}


def drain_of_topics(found: Sequence[Topic]) -> Drain:
    """`found`: what a broker has of DRAIN_TOPIC."""
    return drain_of(found[0].permission if found else None)


def cluster_topics(topics: Iterable[Topic], drained: Collection[str] = ()) -> list[Topic]:
    """Each topic of users once, with the settings of the first shard by name that has it. Those of
    `drained` shards are left out: what producers may do with them elsewhere is not known."""
    found: dict[str, Topic] = {}
    for one in sorted(topics, key=lambda one: (one.broker, one.name)):
        if one.broker not in drained and not is_system_topic(one.name):
            found.setdefault(one.name, replace(one, broker=""))
    return [found[name] for name in sorted(found)]


def differing_topics(topics: Iterable[Topic], drained: Collection[str] = ()) -> list[str]:
    """Topics whose settings are not the same at all shards that take messages."""
    kinds: dict[str, set[Topic]] = defaultdict(set)
    for one in topics:
        if one.broker not in drained and not is_system_topic(one.name):
            kinds[one.name].add(replace(one, broker=""))
    return sorted(name for name, some in kinds.items() if len(some) > 1)


def lacking_topics(wanted: Iterable[Topic], there: Iterable[Topic], drain: Drain) -> list[Topic]:
    """Those that the broker with the topics `there` is to create or alter. While it is drained it
    shows no permission to write, which counts as given: to be compared again once it is open."""
    have = {one.name: replace(one, broker="") for one in there}
    if drain is not Drain.OPEN:
        have = {
            name: replace(one, permission=one.permission | PERMISSION_WRITE)
            for name, one in have.items()
        }
    return [one for one in wanted if not _is_as_wanted(have.get(one.name), one)]


def _is_as_wanted(have: Topic | None, wanted: Topic) -> bool:
    """Queues that hold messages stay readable, so that there may be more to read."""
    if have is None:
        return False
    more = max(have.read_queue_count, wanted.read_queue_count)
    return replace(have, read_queue_count=more) == replace(wanted, read_queue_count=more)


@dataclass(frozen=True, slots=True)
class Unread:
    """Messages of a topic at one shard that a group has not consumed. `group` "": of a topic that
    no group of any shard reads."""

    group: str
    topic: str
    messages: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a shard still holds that no group has consumed."""

    unread: tuple[Unread, ...]
    """By group and topic, groups that have consumed everything among them, with 0."""
    ungrouped: tuple[Unread, ...]
    waiting: tuple[tuple[str, int], ...]
    """Delayed and half messages: the kind, and how many there are at most."""

    @property
    def consumed(self) -> bool:
        """Every group has consumed everything."""
        return not any(one.messages for one in self.unread)

    @property
    def lost(self) -> list[str]:
        """What goes with the shard although every group has consumed everything."""
        none = [
            f"{one.messages} messages of {one.topic}, which no group reads"
            for one in self.ungrouped
        ]
        return none + [f"{count} {kind} messages" for kind, count in self.waiting]


def leftovers(
    queues: Iterable[Queue], here: Iterable[GroupQueue], everywhere: Iterable[GroupQueue]
) -> Leftovers:
    """`queues`: those of the shard. `here`: how far groups have committed there; `everywhere`: at
    all shards, because a group that reads a topic elsewhere has read nothing where it has committed
    nothing."""
    readers: dict[str, set[str]] = defaultdict(set)
    for one in everywhere:
        readers[one.topic].add(one.group)
    committed = {(one.group, one.topic, one.queue_id): one.offset for one in here}
    for group, topic, _ in committed:
        readers[topic].add(group)
    unread: dict[tuple[str, str], int] = defaultdict(int)
    ungrouped: dict[str, int] = defaultdict(int)
    waiting: dict[str, int] = defaultdict(int)
    for queue in queues:
        held = queue.max_offset - queue.min_offset
        if queue.topic in _WAITING:
            waiting[_WAITING[queue.topic]] += held
        elif not is_system_topic(queue.topic):
            if not readers[queue.topic]:
                ungrouped[queue.topic] += held
            for group in readers[queue.topic]:
                at = committed.get((group, queue.topic, queue.queue_id), -1)
                unread[group, queue.topic] += max(0, queue.max_offset - max(at, queue.min_offset))
    return Leftovers(
        tuple(Unread(*key, count) for key, count in sorted(unread.items())),
        tuple(Unread("", topic, count) for topic, count in sorted(ungrouped.items()) if count),
        tuple((kind, count) for kind, count in sorted(waiting.items()) if count),
    )
