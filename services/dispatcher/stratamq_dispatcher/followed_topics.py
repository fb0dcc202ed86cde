"""Which topics may be read, and from where on: the log's table of topics, a page at a time.

A topic whose permission (`perm` of config/topics.json: 4 read, 2 write) lacks the bit for reading
is refused to consumers, as by RocketMQ, and what is below a queue's minimum offset is hidden from
them, about `LOOK_S` after the change. While the log service is away what was learned last holds;
before the whole table was learned once nothing is served.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from stratamq.errors import (
    CorruptRecordError,
    NotPermittedError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.replication_metadata import NO_MARK, Kind, Page
from stratamq.formats.topic_minimums import minimums_of

log = logging.getLogger(__name__)

LOOK_S = 1.0
FIRST_LOOK_S = 0.1
"""While nothing was learned yet."""
PERMISSION_READ = 4

Export = Callable[[Kind, bytes], Awaitable[Page]]
"""`stratamq.follow.tables.Owners.export`."""
Hide = Callable[[str, Mapping[int, int]], None]
"""`QueueTable.hide`."""


class FollowedTopics:
    """Of one event loop."""

    def __init__(self, hide: Hide) -> None:
        self._hide = hide
        self._unreadable: set[str] = set()
        self.learned = False
        """The whole table was learned since the start."""

    def require_learned(self) -> None:
        """UnavailableError before: what is hidden is not known."""
        if not self.learned:
            raise UnavailableError(
                "the dispatcher does not serve yet: it has not learned the topics from the log"
            )

    def require_readable(self, topic: str) -> None:
        """NotPermittedError for a topic without the permission to be read; UnavailableError."""
        self.require_learned()
        if topic in self._unreadable:
            raise NotPermittedError(
                f"topic {topic} has no read permission: an operator can change that with "
                f"`stratamq topics alter {topic} --permission 6`"
            )

    def take(self, document: bytes) -> None:
        """A page of topics that are new, or that changed. CorruptRecordError when it is none."""
        table = parse_json_object(document).get("topicConfigTable")
        if not isinstance(table, dict):
            raise CorruptRecordError("topicConfigTable is missing", 0, "topics")
        for topic, config in table.items():
            permission = config.get("perm") if isinstance(config, dict) else None
            if isinstance(permission, int) and not permission & PERMISSION_READ:
                self._unreadable.add(topic)
            else:
                self._unreadable.discard(topic)
            self._hide(topic, dict(minimums_of(config)))

    async def follow(self, export: Export) -> None:
        """Learn every change, until cancelled."""
        mark = NO_MARK
        answered = True
        while True:
            try:
                page = await export(Kind.TOPICS, mark)
                if page.document:
                    self.take(page.document)
            except StrataError as error:
                if answered:
                    log.info("topics not learned, tried again", extra={"error": str(error)})
                answered = False
            else:
                answered = True
                mark = page.mark
                if page.more:
                    continue
                self.learned = True
            await asyncio.sleep(LOOK_S if self.learned else min(LOOK_S, FIRST_LOOK_S))
