"""The beginning of a writer: what the tier has is compared with this log's history.

Both are of one history up to some place: the end, in this log, of the generation in which the tier
was written last. What the tier may have from behind it is not this log's, and is cut off.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from operator import methodcaller

from stratamq.errors import NotWritableError, UnavailableError
from stratamq.formats.generation_number import term_of
from stratamq.formats.tier_manifest import Manifest, Progress
from stratamq.store.generations import end_of, history
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.reading.manifests import load_manifest, queue_of
from stratamq.tier.reading.times import first_not_before
from stratamq.tier.writing.cutting import first_not_shared
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.progress import ProgressObject, came_late, load_progress
from stratamq_tier.config import NOW
from stratamq_tier.followed_log import LogState
from stratamq_tier.log_reading import LogReading
from stratamq_tier.parts import Parts
from stratamq_tier.tasks import all_of
from stratamq_tier.writers import Writers
from stratamq_tier.written_tier import remember

log = logging.getLogger(__name__)

_NEVER_ENDED = 1 << 62
LOOK_S = 0.05
FOREIGN = "foreign tier"


Cutting = Callable[[Mapping[QueueKey, int]], AbstractAsyncContextManager[None]]
"""What lasts while queues are cut at these queue offsets."""


async def take_over(
    parts: Parts,
    state: LogState,
    progress: ProgressObject,
    reading: LogReading,
    writers: Writers,
    cutting: Cutting,
) -> int:
    """The log offset from which it is read. The tier has nothing that this log does not have, and
    no earlier writer can add anything. NotWritableError when it is another log's."""
    known = await parts.runner.start(progress.load())
    if known is None:
        position = state.readable if parts.config.start == NOW else state.minimum
        await parts.runner.start(progress.store(state.generation, position, position))
        await parts.reading.run(partial(remember, parts.files, parts.config, parts.broker))
        return position
    await parts.reading.run(partial(remember, parts.files, parts.config, parts.broker))
    # A tier of another log's is refused before anything of it is changed.
    await parts.reading.run(partial(shared_end, parts, known, state))
    known = await parts.runner.start(progress.hold()) or known
    shared = await parts.reading.run(partial(shared_end, parts, known, state))
    position = min(known.position, shared)
    late = any(came_late(one, known.generation) for one in parts.table.manifests())
    is_of_another = term_of(known.generation) != term_of(state.generation)
    if known.reach > shared or is_of_another or late:
        place = min(known.reach, shared)
        await _cut(parts, place, known.generation, reading, writers, cutting)
        await parts.runner.start(progress.store(state.generation, position, position))
    else:
        await parts.runner.start(progress.store(state.generation, position, known.reach))
    return position


async def require_ours(parts: Parts, state: LogState) -> None:
    """NotWritableError when the tier is another log's, before it is claimed. One of a later term
    may be of this log's history, as far as is known here."""
    found = await parts.runner.start(load_progress(parts.config.cluster, parts.broker))
    if found is not None and term_of(found[0].generation) <= term_of(state.generation):
        await parts.reading.run(partial(shared_end, parts, found[0], state))


def shared_end(parts: Parts, known: Progress, state: LogState) -> int:
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
) -> None:
    """Take over every queue, without the messages that this log does not have below `place`.

    `generation_before`: the progress's. A queue that came late is judged by its manifest of then.
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
    known = next_offsets | first
    stops: dict[QueueKey, int] = {}
    for manifest in manifests:
        key = manifest.topic, manifest.queue_id
        stops[key] = known.get(key, manifest.end_offset)
    unknown = [one for one in manifests if (one.topic, one.queue_id) not in known and one.records]
    if unknown:
        shared_ms = await parts.reading.run(partial(reading.time_before, place))
        for manifest in unknown:
            stops[manifest.topic, manifest.queue_id] = await _end_of_unknown(
                parts, manifest, shared_ms
            )
    if not whole:
        # What the log had behind the shared history is deleted, as by a full disk.
        await _keep_what_is_shared(parts, place, manifests, stops)
    cut = sum(max(0, one.end_offset - stops[one.topic, one.queue_id]) for one in manifests)

    async def one(key: QueueKey) -> None:
        now_ms = parts.clock.wall_ms()
        await writers.run(
            key,
            methodcaller("take_over", stops[key], now_ms, generation_before, other_log=other_log),
        )

    keys = list(stops)
    other_log = generation_before == parts.config.adopt_generation != 0
    async with cutting(stops):
        for low in range(0, len(keys), parts.config.uploads_at_once):
            await all_of(*map(one, keys[low : low + parts.config.uploads_at_once]))
    log.warning(
        "tier taken over",
        extra={"queues": len(manifests), "messages_cut": cut, "log_offset": place},
    )


async def _keep_what_is_shared(
    parts: Parts, place: int, manifests: Iterable[Manifest], stops: dict[QueueKey, int]
) -> None:
    """Lower `stops` to where every queue's messages are known to lie below log offset `place`: no
    message is kept for one of this log's that has its queue offset. Parts that go beyond leave as a
    whole, and what this log had there is a gap."""

    async def one(manifest: Manifest) -> None:
        key = manifest.topic, manifest.queue_id
        queue = QueuePlace(manifest.cluster, manifest.broker, *key)
        found = await parts.runner.start(queue_of(queue, manifest))
        stops[key] = min(stops[key], first_not_shared(found, place))

    listed = [manifest for manifest in manifests if manifest.records]
    for low in range(0, len(listed), parts.config.uploads_at_once):
        await all_of(*map(one, listed[low : low + parts.config.uploads_at_once]))


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


async def _end_of_unknown(parts: Parts, manifest: Manifest, shared_ms: int | None) -> int:
    """Of a queue of which this log knows nothing: up to which queue offset the tier keeps it, when
    the last message that both histories have was stored at `shared_ms`. Messages behind it are not
    this log's. One that began at that millisecond or later began behind it: else the log would
    know the queue.
    """
    if shared_ms is None:
        log.error(
            "a queue of the tier is not known to the log, which has no message any more to tell "
            "which of its messages both have: all are kept",
            extra={"topic": manifest.topic, "queue": manifest.queue_id},
        )
        return manifest.end_offset
    if manifest.records[0].begin_ms >= shared_ms:
        return 0
    place = QueuePlace(manifest.cluster, manifest.broker, manifest.topic, manifest.queue_id)
    return await parts.runner.start(_first_behind(place, manifest, shared_ms))


def _first_behind(place: QueuePlace, manifest: Manifest, time_ms: int) -> Procedure[int]:
    found = yield from queue_of(place, manifest)
    return (yield from first_not_before(found.queue, time_ms + 1, found.points))
