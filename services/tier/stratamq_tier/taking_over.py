"""The beginning of a writer: what the tier has is compared with this log's history.

Both are of one history up to some place: the end, in this log, of the generation in which the tier
was written last. What the tier may have from behind it is not this log's, and is cut off.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.formats.generation_number import term_of
from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.formats.tier_progress import TierProgress
from stratamq.service.tasks import all_of
from stratamq.store.generations import end_of, history
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.manifests import load_manifest, queue_of
from stratamq.tier.reading.times import first_not_before
from stratamq.tier.writing.cutting import first_not_shared
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.progress import ProgressObject, came_late, load_progress
from stratamq.tier.writing.queue_writer import TierQueueWriter
from stratamq_tier.config import NOW
from stratamq_tier.followed_log import FollowedState
from stratamq_tier.gaps import Gaps
from stratamq_tier.log_reading import LogReading
from stratamq_tier.parts import Parts
from stratamq_tier.writers import Writers
from stratamq_tier.written_tier import Seen, is_older

log = logging.getLogger(__name__)

_NEVER_ENDED = 1 << 62
LOOK_S = 0.05
FOREIGN = "foreign tier"


Cutting = Callable[[Mapping[QueueKey, int]], AbstractAsyncContextManager[None]]
"""What lasts while queues are cut at these queue offsets."""


@dataclass(frozen=True, slots=True)
class Before:
    """What was known of the tier before it is taken over. `doubted`: it was put back to an older
    copy."""

    listed: Collection[QueueKey]
    seen: Seen | None
    doubted: bool


async def take_over(
    parts: Parts,
    state: FollowedState,
    progress: ProgressObject,
    reading: LogReading,
    writers: Writers,
    cutting: Cutting,
    before: Before,
    put_back: Callable[[], None],
) -> tuple[int, Gaps]:
    """The log offset from which it is read, and what is a gap then. The tier has nothing that this
    log does not have, and no earlier writer can add anything. `put_back` is called when the tier is
    an older copy, and that was not known. NotWritableError when it is another log's."""
    known = await parts.runner.start(progress.load())
    gaps = Gaps(parts.config, parts.floor, before.listed)
    if known is None:
        position = state.readable if parts.config.start == NOW else state.minimum
        first = progress.store(state.generation, position, position, choice=parts.config.choice)
        await parts.runner.start(first)
        return position, gaps
    # A tier of another log's is refused before anything of it is changed.
    await parts.reading.run(partial(shared_end, parts, known, state))
    doubted = known.put_back or before.doubted or is_older(known, before.seen)
    if doubted and not known.put_back:
        put_back()
        log.error(
            "the tier is an older copy of what it was: what the log has is uploaded again, and "
            "messages that are in neither are lost",
            extra={"position": known.position, "log_minimum": state.minimum},
        )
    known = await parts.runner.start(progress.hold(put_back=doubted)) or known
    if before.seen is not None:
        progress.continue_above(before.seen[0])
    parts.table.put_back.clear()
    shared = await parts.reading.run(partial(shared_end, parts, known, state))
    position = min(known.position, shared)
    forced = known.forced or state.minimum > position
    position = state.minimum if doubted else max(position, state.minimum)
    reach = max(known.reach, position, state.readable if doubted else 0)
    earlier = [one for one in parts.table.manifests() if came_late(one, known.generation)]
    is_of_another = term_of(known.generation) != term_of(state.generation)
    if known.reach > shared or is_of_another or earlier:
        place = min(known.reach, shared)
        await _cut(parts, place, known.generation, reading, writers, cutting, before.listed)
        reach = position
    storing = progress.store(
        state.generation, position, reach, choice=parts.config.choice, forced=forced
    )
    await parts.runner.start(storing)
    return position, replace(
        gaps,
        doubted=doubted,
        forced=forced,
        read_again=position > state.minimum,
        chosen=known.chosen,
    )


async def require_ours(parts: Parts, state: FollowedState) -> Epoch:
    """NotWritableError when the tier is another log's, before it is claimed. One of a later term
    may be of this log's history, as far as is known here. The epoch of its last writer."""
    found = await parts.runner.start(load_progress(parts.config.cluster, parts.broker))
    if found is not None and term_of(found[0].generation) <= term_of(state.generation):
        await parts.reading.run(partial(shared_end, parts, found[0], state))
    return found[0].epoch if found is not None else (0, 0)


def shared_end(parts: Parts, known: TierProgress, state: FollowedState) -> int:
    """Up to which log offset this log has what the tier was written from. Blocking.
    NotWritableError when it is another log's."""
    if known.generation == parts.config.adopt_generation:
        return state.minimum
    ours = {number for number, _ in history(parts.files)} | {state.generation}
    # This log may have followed the other one no longer than into an earlier generation.
    theirs_end = _NEVER_ENDED
    for number, start in reversed(known.history or ((known.generation, 0),)):
        if number in ours:
            return min(theirs_end, end_of(parts.files, number, _NEVER_ENDED))
        theirs_end = start
    raise NotWritableError(
        f"the tier of broker {parts.broker} in {parts.config.target} was written from the "
        f"log's generation {known.generation}, with which this log has no history in common: it "
        "is another broker's; give this one another name or target. If this store was restored "
        f"from that tier, set tier.adopt_generation={known.generation}",
        reason=FOREIGN,
    )


async def _cut(
    parts: Parts,
    place: int,
    generation_before: int,
    reading: LogReading,
    writers: Writers,
    cutting: Cutting,
    listed: Collection[QueueKey],
) -> None:
    """Take over every queue, without the messages that this log does not have below `place`.

    `generation_before`: the progress's. A queue that came late is judged by its manifest of then;
    one that is `listed` was put back, and is judged by the history of its writer.
    """
    end, next_offsets = await parts.queue_ends()
    generation = parts.log.state.generation
    while parts.log.state.readable < end:
        if parts.log.state.generation != generation:
            raise UnavailableError("the log has begun another generation meanwhile")
        await asyncio.sleep(LOOK_S)
    first, whole = await parts.reading.run(partial(reading.first_offsets, place, end))
    await _look_for_unlisted(parts, next_offsets)
    manifests = parts.table.manifests()
    ends = next_offsets | first
    time_ms = None
    if any(one.key not in ends for one in manifests):
        time_ms = await parts.reading.run(partial(reading.time_before, place))
    put_back = {
        one.epoch[0] for one in manifests if one.key in listed and came_late(one, generation_before)
    }
    places = await parts.reading.run(partial(_ends_of, parts, put_back))
    shared = _Shared(ends, None if whole else place, time_ms, places)
    stops = await _stops(parts, shared, manifests)
    cut = sum(max(0, one.end_offset - stops[one.key]) for one in manifests)
    other_log = generation_before == parts.config.adopt_generation != 0

    async def one(key: QueueKey) -> None:
        def work(writer: TierQueueWriter) -> Procedure[Manifest | None]:
            # An earlier writer may have committed since the manifest was looked at.
            return writer.take_over(
                stops[key],
                parts.clock.wall_ms(),
                generation_before,
                other_log=other_log,
                end_of=shared.end_of,
            )

        await writers.run(key, work)

    keys = list(stops)
    async with cutting(stops):
        for low in range(0, len(keys), parts.config.uploads_at_once):
            await all_of(*map(one, keys[low : low + parts.config.uploads_at_once]))
    log.warning(
        "tier taken over",
        extra={"queues": len(manifests), "messages_cut": cut, "log_offset": place},
    )


async def _stops(
    parts: Parts, shared: "_Shared", manifests: Sequence[Manifest]
) -> dict[QueueKey, int]:
    """Up to which queue offset the tier keeps each queue, by what is known of it now."""
    stops: dict[QueueKey, int] = {}

    async def one(manifest: Manifest) -> None:
        stops[manifest.key] = await parts.runner.start(shared.end_of(manifest))

    for low in range(0, len(manifests), parts.config.uploads_at_once):
        await all_of(*map(one, manifests[low : low + parts.config.uploads_at_once]))
    return stops


@dataclass(frozen=True, slots=True)
class _Shared:
    """What this log knows of the history that it shares with the tier.

    `places`: by generation, the same of earlier writers whose manifests were put back.
    `ends`: of each queue that it knows, the first queue offset that is not shared, or the next one.
    `place`: the log offset up to which the history is shared, where the log has not all messages
    behind it any more, as after a full disk. `time_ms`: when the last shared message was stored;
    None: the log has none.
    """

    ends: Mapping[QueueKey, int]
    place: int | None
    time_ms: int | None
    places: Mapping[int, int]

    def end_of(self, manifest: Manifest) -> Procedure[int]:
        """Up to which queue offset the tier keeps the queue of that manifest."""
        end = self.ends.get(manifest.key)
        if not manifest.records:
            return manifest.end_offset if end is None else end
        if end is None:
            end = yield from self._end_of_unknown(manifest)
        place = self.places.get(manifest.epoch[0], self.place)
        if place is None:
            return end
        # No message is kept for one of this log's that has its queue offset. Parts that go beyond
        # leave as a whole, and what this log had there is a gap.
        found = yield from queue_of(_place(manifest), manifest)
        return min(end, first_not_shared(found, place))

    def _end_of_unknown(self, manifest: Manifest) -> Procedure[int]:
        """Return where a queue ends of which this log knows nothing.

        Messages behind the last shared one are not this log's. A queue that began at that
        millisecond or later began behind it: else the log would know the queue.
        """
        if self.time_ms is None:
            log.error(
                "a queue of the tier is not known to the log, which has no message any more to "
                "tell which of its messages both have: all are kept",
                extra={"topic": manifest.topic, "queue": manifest.queue_id},
            )
            return manifest.end_offset
        if manifest.records[0].begin_ms >= self.time_ms:
            return 0
        found = yield from queue_of(_place(manifest), manifest)
        return (yield from first_not_before(found.queue, self.time_ms + 1, found.points))


def _ends_of(parts: Parts, generations: Iterable[int]) -> dict[int, int]:
    """Where each of them ended in this log; 0: it was not of this log's history. Blocking."""
    ours = {number for number, _ in history(parts.files)}
    return {one: end_of(parts.files, one, 0) if one in ours else 0 for one in generations}


def _place(manifest: Manifest) -> QueuePlace:
    return QueuePlace(manifest.cluster, manifest.broker, manifest.topic, manifest.queue_id)


async def _look_for_unlisted(parts: Parts, queues: Iterable[QueueKey]) -> None:
    """A storage's list may be of a moment ago: queues of the log that it did not have are asked for
    by their names. What is found later has come late."""
    known = parts.table.get
    keys = [key for key in queues if known(*key) is None and parts.config.wants(key[0])]

    async def one(key: QueueKey) -> None:
        place = QueuePlace(parts.config.cluster, parts.broker, *key)
        manifest = await parts.runner.start(load_manifest(place))
        if manifest is not None:
            parts.table.put(manifest)

    for low in range(0, len(keys), parts.config.uploads_at_once):
        await all_of(*map(one, keys[low : low + parts.config.uploads_at_once]))
