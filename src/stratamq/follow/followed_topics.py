"""Which topics may be read, and from where on: the log's table of topics, a page at a time.

A topic whose permission (`perm` of config/topics.json: 4 read, 2 write) lacks the bit for reading
is refused to consumers, as by RocketMQ; what is below a queue's minimum offset is hidden from them,
and a topic that was deleted is none, about `LOOK_S` after the change. While the log service is away
what was learned last holds; before the whole table was learned once nothing is served.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from stratamq.errors import (
    CorruptRecordError,
    NotFoundError,
    NotPermittedError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.replication_metadata import NO_MARK, MetadataKind, Page
from stratamq.formats.topic_minimums import DELETED, minimums_of
from stratamq.formats.topic_types import MessageType, type_of_topic
from stratamq.formats.topics import PERMISSION_READ

log = logging.getLogger(__name__)

LOOK_S = 1.0
FIRST_LOOK_S = 0.1
"""While nothing was learned yet."""

Export = Callable[[MetadataKind, bytes], Awaitable[Page]]
"""`stratamq.follow.tables.Owners.export`."""
Hide = Callable[[str, Mapping[int, int]], None]
"""Gets a topic, and its minimum offsets by queue id (`QueueTable.hide`)."""
Shows = Callable[[str], bool]
"""Whether a queue of the topic has a message at or above its minimum offset."""


class FollowedTopics:
    """Used on one event loop."""

    def __init__(self, hide: Hide, shows: Shows = lambda topic: False) -> None:
        self._hide = hide
        self._shows = shows
        self._unreadable: set[str] = set()
        self._deleted: set[str] = set()
        self._by_priority: set[str] = set()
        self.learned = False
        """The whole table was learned since the start."""

    def require_learned(self) -> None:
        """UnavailableError before: what is hidden is not known."""
        if not self.learned:
            raise UnavailableError(
                "the service does not serve yet: it has not learned the topics from the log"
            )

    def require_readable(self, topic: str) -> None:
        """NotPermittedError for a topic without the permission to be read; NotFoundError for one
        that was deleted; UnavailableError."""
        self.require_learned()
        if self.is_deleted(topic):
            raise NotFoundError(f"there is no topic {topic}: it was deleted")
        self.require_permission(topic)

    def require_permission(self, topic: str) -> None:
        """NotPermittedError for a topic that is known not to have the permission to be read."""
        if topic in self._unreadable:
            raise NotPermittedError(
                f"topic {topic} has no read permission: an operator can change that with "
                f"`stratamq topics alter {topic} --permission 6`"
            )

    def is_deleted(self, topic: str) -> bool:
        """Not while it has messages to show: a slave may have them of a topic that was made again
        before it has learned that."""
        return topic in self._deleted and not self._shows(topic)

    def is_by_priority(self, topic: str) -> bool:
        """Whether messages of its higher queues are handed out first."""
        return topic in self._by_priority

    def take(self, document: bytes) -> set[str]:
        """A page of topics that are new, or that changed: those of them that are deleted.
        CorruptRecordError when it is none."""
        table = parse_json_object(document).get("topicConfigTable")
        if not isinstance(table, dict):
            raise CorruptRecordError("topicConfigTable is missing", 0, "topics")
        for topic, config in table.items():
            entry = config if isinstance(config, dict) else {}
            permission = entry.get("perm")
            deleted = entry.get(DELETED) is True
            unreadable = isinstance(permission, int) and not permission & PERMISSION_READ
            _put(self._deleted, topic, deleted)
            _put(self._by_priority, topic, type_of_topic(entry) is MessageType.PRIORITY)
            _put(self._unreadable, topic, unreadable and not deleted)
            self._hide(topic, dict(minimums_of(config)))
        return {topic for topic in table if self.is_deleted(topic)}

    async def follow(
        self, export: Export, on_deleted: Callable[[set[str]], None] = lambda topics: None
    ) -> None:
        """Learn every change, until cancelled. `on_deleted` gets topics that are deleted, again
        after each start."""
        mark = NO_MARK
        answered = True
        while True:
            try:
                page = await export(MetadataKind.TOPICS, mark)
                if page.document and (deleted := self.take(page.document)):
                    on_deleted(deleted)
            except StrataError as error:
                if answered:
                    log.info("topics not loaded, retrying", extra={"error": str(error)})
                answered = False
            else:
                answered = True
                mark = page.mark
                if page.more:
                    continue
                self.learned = True
            await asyncio.sleep(LOOK_S if self.learned else min(LOOK_S, FIRST_LOOK_S))


def _put(among: set[str], topic: str, wanted: bool) -> None:
    if wanted:
        among.add(topic)
    else:
        among.discard(topic)
