"""What a queue of the tier lacks before the messages that the log goes on with, and why.

Everything below the progress's position is in the tier, and the log deletes nothing above it unless
by force. So messages that are in neither were in the tier once, unless it is known why not:

    purged                    consumers are not to see them
    not chosen                the topic was not in the tier when they were in the log
    deleted by force          the log begins behind the progress, which is no older than it was

These are gaps that readers pass over. All else is lost: who reads there is told.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from stratamq.formats.tier_manifest import Hole, Manifest
from stratamq.formats.tier_progress import TierSelection
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.writing.claim import PutBackError
from stratamq.tier.writing.intake import QueueKey
from stratamq_tier.config import TierConfig


@dataclass(frozen=True, slots=True)
class Gaps:
    """What is known of one tenure, by any thread.

    `doubted`: the tier was put back to an older copy. `forced`: the log begins behind what the tier
    has of it. `read_again`: there may be more in the log than is read. `chosen`: by what messages
    were chosen since queues were looked through last.
    """

    config: TierConfig
    floor: Callable[[QueueKey], int]
    listed: Collection[QueueKey]
    doubted: bool = False
    forced: bool = False
    read_again: bool = False
    chosen: tuple[TierSelection, ...] = ()

    def holes(
        self, place: QueuePlace, manifest: Manifest | None, end: int, now_ms: int
    ) -> tuple[Hole, ...]:
        """`Gaps` of a `QueueWriter`. PutBackError: the log is to be read again from its minimum,
        which may have some of what is lost."""
        key = place.topic, place.queue_id
        start = manifest.end_offset if manifest is not None else 0
        hidden = max(start, min(end, self.floor(key)))
        purged = Hole(start, hidden, now_ms)
        rest = Hole(hidden, end, now_ms)
        if manifest is None:
            # What it had before it began is no gap, unless it had begun before.
            had = self.doubted or key in self.listed
            holes: tuple[Hole, ...] = (
                (replace(rest, lost=True),) if had and not self._is_chosen_now(key[0]) else ()
            )
        elif self._is_chosen_now(key[0]) or (self.forced and not self.doubted):
            holes = (Hole(start, end, now_ms),)
        else:
            holes = (purged, replace(rest, lost=True))
        holes = tuple(hole for hole in holes if hole.start < hole.end)
        if self.read_again and any(hole.lost for hole in holes):
            raise PutBackError(
                f"{place.folder}: the tier misses the messages at queue offsets {rest.start} to "
                f"{rest.end}, which were in it"
            )
        return holes

    def _is_chosen_now(self, topic: str) -> bool:
        """Whether the topic's messages, or the earlier ones, did not belong in the tier before."""
        return any(
            not replace(self.config, topics=one.topics, except_topics=one.except_topics).wants(
                topic
            )
            or one.start != self.config.start
            for one in self.chosen
        )
