"""Lists a group's dead letters for operators, and takes their requests to hand some out again.

A dead letter is named by its place in the log, and looked up in its topic: a place without one is
not found.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from stratamq.errors import InvalidRequestError, NotFoundError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.queues import QueueCalls
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import DEAD_LETTER_PREFIX, retried_topic
from stratamq.service.awaiting import succeeded
from stratamq_delivery.reading import MessageReader
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.replays import Replays, ReplayWish
from stratamq_delivery.shared_groups import SharedGroups

READ_AT_ONCE = 64


class Letter(NamedTuple):
    """`topic`: in which the group failed at it; empty: it does not say. `times`: how often it was
    replayed."""

    source: MessageSource
    frame: Frame
    topic: str
    times: int


class ReplayOutcome(NamedTuple):
    """`error`: why it was not replayed."""

    source: MessageSource
    error: StrataError | None


class Replaying:
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        groups: SharedGroups,
        replays: Replays,
        followed: FoldPlace,
        appends: OwnAppends,
        queues: QueueCalls,
        moved: Callable[[], None],
    ) -> None:
        """`moved`: there is something to append."""
        self._groups = groups
        self._replays = replays
        self._followed = followed
        self._appends = appends
        self._queues = queues
        self._reader = MessageReader(queues)
        self._moved = moved

    async def letters(
        self, group: str, start: int, limit: int, *, unplayed: bool = False
    ) -> tuple[list[Letter], int]:
        """A group's dead letters, from this offset of their topic on; and where the next page
        begins, 0: nowhere. `unplayed`: those that were not replayed."""
        found = list[Letter]()
        first, end = await self._bounds(group)
        at = max(start, first)
        while at < end and len(found) < limit:
            count = min(READ_AT_ONCE, end - at)
            some = await self._read(group, at, count)
            wanted = [one for one in some if not (unplayed and one.times)]
            if len(found) + len(wanted) > limit:
                wanted = wanted[: limit - len(found)]
                some = some[: some.index(wanted[-1]) + 1]
            found += wanted
            at = some[-1].frame.queue_offset + 1 if some else at + count
        return found, at if at < end else 0

    async def replay(
        self, group: str, sources: Sequence[MessageSource], limit: int
    ) -> list[ReplayOutcome]:
        """Hand dead letters out again: these, or without any the first ones that were not replayed.
        An outcome for each, once the log has flushed it. NotWritableError on a slave."""
        self._appends.require_active("delivery")
        letters: list[Letter | MessageSource] = []
        if sources:
            letters += [await self._find(group, one) or one for one in dict.fromkeys(sources)]
        else:
            letters += (await self.letters(group, 0, limit, unplayed=True))[0]
        return await asyncio.gather(*(self._replay(group, one) for one in letters))

    async def _replay(self, group: str, letter: Letter | MessageSource) -> ReplayOutcome:
        if isinstance(letter, MessageSource):
            place = f"{letter.generation}:{letter.offset}"
            return ReplayOutcome(
                letter, NotFoundError(f"no dead letter of group {group} at {place}")
            )
        source, frame, topic, _ = letter
        try:
            queues = (one for one in self._groups.places() if self._groups.queue(one) is not None)
            if not any((one.group, one.topic) == (group, topic) for one in queues):
                raise InvalidRequestError(
                    f"no worker would get it: {group} does not share {topic!r}"
                )
            wish = ReplayWish(source, frame.total_size, group, topic)
            await succeeded(partial(self._ask, wish))
        except StrataError as error:
            return ReplayOutcome(source, error)
        return ReplayOutcome(source, None)

    def _ask(self, wish: ReplayWish, done: Callable[[StrataError | None], None]) -> None:
        self._replays.ask(wish, done)
        self._moved()

    async def _find(self, group: str, source: MessageSource) -> Letter | None:
        """None: no dead letter of the group lies there. Places rise with the offsets of a queue."""
        low, high = await self._bounds(group)
        while low < high:
            middle = (low + high) // 2
            found = await self._read(group, middle, 1)
            if found and found[0].source == source:
                return found[0]
            if not found or found[0].source.offset < source.offset:
                low = middle + 1
            else:
                high = middle
        return None

    async def _bounds(self, group: str) -> tuple[int, int]:
        self._followed.require_serving("delivery")
        bounds = await self._queues.bounds(DEAD_LETTER_PREFIX + group, self._followed.applied)
        return bounds.get(0, (0, 0))

    async def _read(self, group: str, start: int, count: int) -> list[Letter]:
        place = GroupPlace(group, DEAD_LETTER_PREFIX + group, 0, 0)
        read = await self._reader.read(place, start, count, 1, 1)
        return list(self._letters(group, (message.raw for message in read.messages)))

    def _letters(self, group: str, raws: Iterable[bytes]) -> Iterable[Letter]:
        for raw in raws:
            frame = decode(raw)
            assert isinstance(frame, Frame)
            place, properties = frame.physical_offset, frame.properties
            topic = properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC, "")
            source = MessageSource(self._followed.generation_of(place), place)
            yield Letter(source, frame, retried_topic(group, topic), self._replays.times(place))
