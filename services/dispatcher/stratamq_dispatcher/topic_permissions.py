"""Which topics may be read: the log's table of topics, followed a page at a time.

A topic whose permission (`perm` of config/topics.json: 4 read, 2 write) lacks the bit for reading
is refused to consumers, as by RocketMQ, about `LOOK_S` after the change. While the log service is
away what was learned last holds; before anything was learned all may be read.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from stratamq.errors import CorruptRecordError, NotPermittedError, StrataError
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.replication_metadata import NO_MARK, Kind, Page

log = logging.getLogger(__name__)

LOOK_S = 1.0
PERMISSION_READ = 4

Export = Callable[[Kind, bytes], Awaitable[Page]]
"""`stratamq.follow.tables.Owners.export`."""


class TopicPermissions:
    """Of one event loop."""

    def __init__(self) -> None:
        self._unreadable: set[str] = set()

    def require_readable(self, topic: str) -> None:
        """NotPermittedError for a topic without the permission to be read."""
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
            await asyncio.sleep(LOOK_S)
