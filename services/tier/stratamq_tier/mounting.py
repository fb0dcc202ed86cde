"""A mounted tier: its writer is elsewhere, or is no more. It is read, and looked at again."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from stratamq.errors import NotFoundError, StrataError
from stratamq.formats.replication_metadata import MetadataKind, Page
from stratamq.store.topic_table import queue_counts, topics_document
from stratamq.tier.consumer_offsets import TABLE, OffsetTable, load_consumer_offsets
from stratamq.tier.driver.calls import Version
from stratamq.tier.driver.running import Runner
from stratamq.tier.writing.progress import load_progress
from stratamq_tier.queue_table import TierQueueTable

log = logging.getLogger(__name__)

NOT_WRITING = "the tier is mounted: it is read here, and its broker writes it"
LOOKS_WITHOUT_PROGRESS = 20
"""So often at most the manifests are not asked for: retention moves no progress."""

Take = Callable[[MetadataKind, Page], Awaitable[None]]
"""Lets the owner of a table take a page of it (`stratamq.follow.tables.Owners.take`)."""


class Mount:
    """Belongs to the event loop. Stands where a `Role` does, from its first `look` on: nothing is
    written here, and what the tier has is known."""

    tenure = None
    foreign_reason = ""
    is_known = True
    put_backs = 0

    def __init__(
        self,
        runner: Runner,
        names: tuple[str, str],
        table: TierQueueTable,
        load: Callable[[], Awaitable[None]],
        take: Take,
        look_ms: int,
    ) -> None:
        """`names`: cluster and broker. `load`: learn what the tier has of every queue now."""
        self.not_writing_reason = NOT_WRITING
        self._runner = runner
        self._names = names
        self._table = table
        self._load = load
        self._take = take
        self._look_s = look_ms / 1000
        self._seen: Version | None = None
        self._looks_left = 0
        self._topics: dict[str, int] = {}
        self._offsets: OffsetTable = {}

    async def run(self) -> None:
        """Look again and again behind the first look, until it is cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self.look()
                self.not_writing_reason = NOT_WRITING
            except StrataError as error:
                if self.not_writing_reason == NOT_WRITING:
                    log.warning("mounted tier not read", extra={"reason": str(error)})
                self.not_writing_reason = f"{NOT_WRITING}; it was not read: {error}"

    async def look(self) -> None:
        """Learn what has changed, and pass it on. NotFoundError for a tier that has nothing of the
        broker; other errors of the storage, and of the receiver."""
        progress = await self._runner.start(load_progress(*self._names))
        version = progress[1] if progress is not None else None
        if version is None or version != self._seen or not self._looks_left:
            await self._load()
            if not len(self._table):
                raise NotFoundError(f"the tier has nothing of the broker {'/'.join(self._names)}")
            await self._pass_topics_on()
            self._seen, self._looks_left = version, LOOKS_WITHOUT_PROGRESS
        self._looks_left -= 1
        await self._pass_offsets_on()

    async def _pass_topics_on(self) -> None:
        manifests = self._table.manifests()
        counts = queue_counts(one.key for one in manifests)
        changed = {name: count for name, count in counts.items() if self._topics.get(name) != count}
        if changed:
            document = json.dumps(topics_document(changed)).encode()
            await self._take(MetadataKind.TOPICS, Page(document))
            self._topics.update(changed)

    async def _pass_offsets_on(self) -> None:
        offsets = await self._runner.start(load_consumer_offsets(*self._names))
        changed = {name: one for name, one in offsets.items() if self._offsets.get(name) != one}
        if changed:
            document = json.dumps({TABLE: changed}).encode()
            await self._take(MetadataKind.CONSUMER_OFFSETS, Page(document))
            self._offsets = offsets
