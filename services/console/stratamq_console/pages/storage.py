"""The storage map: what fills the disk, what is deleted next, what keeps it, what was verified."""

from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from stratamq.client import AsyncClient, MappedSegment, StorageMap, TopicBytes
from stratamq.errors import InvalidRequestError
from stratamq_console.log_picture import AGES_H, log_picture
from stratamq_console.parts import PageParts
from stratamq_console.showing import percent, segment, size
from stratamq_console.treemap import Tile, treemap

TOPICS = 20
SEGMENTS_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class StorageView:
    """What the page shows. `segments`: a page of them from `start` on, an offset of the log;
    `following`: where the next one begins, 0 for the last."""

    found: StorageMap
    segments: tuple[MappedSegment, ...]
    following: int
    picture: Markup
    tiles: Markup
    first_deletion_ms: int | None

    @property
    def is_empty(self) -> bool:
        return not self.found.log.appended_offset

    @property
    def ages_h(self) -> tuple[int, ...]:
        return AGES_H

    @property
    def topics(self) -> list[TopicBytes]:
        """The largest, and all others as one without a name."""
        shares = self.found.topics
        if shares is None:
            return []
        return [*shares.largest, *([shares.others] if shares.others.queues else [])]

    def share_of(self, topic: TopicBytes) -> float:
        shares = self.found.topics
        return topic.size_bytes / shares.size_bytes if shares and shares.size_bytes else 0.0

    @property
    def disk_share(self) -> float | None:
        where = self.found.segments
        return where.disk_used_bytes / where.disk_total_bytes if where.disk_total_bytes else None


def routes(parts: PageParts) -> list[BaseRoute]:
    async def show(request: Request) -> Response:
        start = _offset(request.query_params.get("segment", "0"))
        root = request.scope.get("root_path", "")
        view = await gather_storage(parts.client(request), start, root)
        return parts.render(request, "storage.html", view)

    return [Route("/storage", show)]


async def gather_storage(client: AsyncClient, start: int = 0, root: str = "") -> StorageView:
    """`start`: the table of segments begins with the first one at or above this offset; `root`:
    what the console's paths begin with."""
    found = await client.admin.storage_map(TOPICS)
    rows = [one for one in found.mapped() if one.segment.start_offset >= start]
    following = rows[SEGMENTS_PER_PAGE:][:1]
    known = [one.deletion_ms for one in found.segments.segments if one.deletion_ms is not None]
    return StorageView(
        found,
        tuple(rows[:SEGMENTS_PER_PAGE]),
        following[0].segment.start_offset if following else 0,
        log_picture(found),
        _tiles(found, root),
        min(known, default=None),
    )


def _tiles(found: StorageMap, root: str) -> Markup:
    shares = found.topics
    if shares is None:
        return Markup("")
    total = shares.size_bytes or 1
    tiles = [
        Tile(
            one.topic,
            one.size_bytes,
            f"{size(one.size_bytes)}, {percent(one.size_bytes / total)}",
            f"{root}/topics/{segment(one.topic)}",
        )
        for one in shares.largest
    ]
    rest = shares.topics - len(tiles)
    if rest:
        others = shares.others.size_bytes
        tiles.append(Tile(f"{rest} others", others, f"{size(others)}, {percent(others / total)}"))
    return treemap("Topics by bytes in the log, to scale", tiles)


def _offset(text: str) -> int:
    if not text.isdecimal() or len(text) > 19:
        raise InvalidRequestError(f"{text[:40]!r} is no offset of the log")
    return int(text)
