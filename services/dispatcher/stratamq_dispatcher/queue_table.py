"""All queues of one store, by topic and queue id: opened at the start, grown by runs, listed."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

from stratamq.errors import CorruptionError
from stratamq.files.port import Files
from stratamq.formats.queue_paths import QueueGeometry, can_be_directory
from stratamq.formats.queue_units import UnitRun
from stratamq.rpc.paging import page
from stratamq_dispatcher.consume_queue import ERASE_ALL, ConsumeQueue
from stratamq_dispatcher.dispatch_state import Ranges, RecordedQueues
from stratamq_dispatcher.opening import open_trusted, open_untrusted
from stratamq_dispatcher.queue_files import OpenFiles, set_aside
from stratamq_dispatcher.resuming import LogWitness, open_rebuilt

QueueKey = tuple[str, int]
EXPIRED_PER_STEP = 64
LOOKED_AT_PER_STEP = 5_000
"""So many queues are asked for files to expire: less than a millisecond."""


class QueueTable:
    """Belongs to the engine's thread."""

    def __init__(
        self, files: Files, geometry: QueueGeometry, open_files: OpenFiles, incarnation: int = 1
    ) -> None:
        self.geometry = geometry
        self.open_files = open_files
        self.dirty: OrderedDict[ConsumeQueue, None] = OrderedDict()
        """Queues with something for the next flush, in the order in which they became so."""
        self.unwritten_bytes = 0
        """Units of all queues that are only in memory."""
        self.report: list[str] = []
        self._files = files
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._order: list[ConsumeQueue] = []
        """All of them, in the order in which they came."""
        self._by_topic: dict[str, list[ConsumeQueue]] = {}
        """Likewise, by topic."""
        self.incarnation = incarnation
        """Another one when the order is."""
        self._refused_topics: set[str] = set()
        self._floors: dict[str, Mapping[int, int]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._queues.values())

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def next_index(self, topic: str, queue_id: int) -> int:
        """Where the next unit of a queue goes; 0 if there is none of this name."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.end

    def of_topic(self, topic: str) -> Sequence[ConsumeQueue]:
        """In the order in which they came."""
        return self._by_topic.get(topic, [])

    def shows(self, topic: str) -> bool:
        """Whether a queue of the topic has a message at or above its minimum offset."""
        return any(queue.hidden_below < queue.end for queue in self.of_topic(topic))

    def page(
        self, topic: str, place: int, wanted: int, most: int
    ) -> tuple[list[ConsumeQueue], int]:
        """Queues of a topic, with "" of all, in the order in which they came, and where the next
        page begins; 0: there is none."""
        queues = self._by_topic.get(topic, []) if topic else self._order
        return page(queues, place, wanted, most=most, size=lambda queue: len(queue.topic))

    def hide(self, topic: str, floors: Mapping[int, int]) -> None:
        """Consumers get nothing of a topic below these indexes, by queue id, also in queues that
        come later; they replace what was there before."""
        if floors == self._floors.get(topic, {}):
            return
        if floors:
            self._floors[topic] = floors
        else:
            del self._floors[topic]
        for queue in self._by_topic.get(topic, ()):
            queue.floor = floors.get(queue.queue_id, 0)

    # --- opening ---

    def open_trusted(
        self, ranges: Ranges, recorded: RecordedQueues | None, position: int, erase: int
    ) -> bool:
        """Open every queue at our watermark. False when one of them does not agree with it.

        The list is stored before the watermark. Files that it does not name (made just before a
        crash, or back after one) hold nothing below the watermark, and are removed with the first
        flush.
        """
        good = True
        for (topic, queue_id), files in ranges.items():
            queue = ConsumeQueue(topic, queue_id, self.geometry)
            listed = files if recorded is None else recorded.ranges.get((topic, queue_id))
            try:
                if listed is None:
                    queue.erase = ERASE_ALL
                else:
                    stale = erase if listed == files else ERASE_ALL
                    open_trusted(queue, listed, self.open_files, position, stale)
            except (CorruptionError, OSError) as error:
                good = False
                self.report.append(f"{queue.directory}: {error}; compared with the log again")
            self._put(queue)
        return good

    def open_rebuilt(self, ranges: Ranges, position: int, log: LogWitness) -> bool:
        """Open every queue where an interrupted rebuild has brought it when all of the log below
        `position` was in the files. False when that cannot be found out."""
        for (topic, queue_id), files in ranges.items():
            queue = ConsumeQueue(topic, queue_id, self.geometry)
            self._put(queue)
            try:
                open_rebuilt(queue, files, self.open_files, position, log)
            except (CorruptionError, OSError) as error:
                self.report.append(f"{queue.directory}: {error}; compared with the log again")
                return False
        return True

    def open_untrusted(self, ranges: Ranges, below: int) -> None:
        """Open every queue again, believing only what the log cannot give again."""
        self._queues.clear()
        self._order, self._by_topic = [], {}
        self.incarnation += 1
        self.dirty.clear()
        self.unwritten_bytes = 0
        for (topic, queue_id), files in list(ranges.items()):
            queue = ConsumeQueue(topic, queue_id, self.geometry)
            try:
                open_untrusted(queue, files, self.open_files, below)
            except OSError as error:
                self.open_files.close()
                target = set_aside(self._files, queue.directory)
                del ranges[topic, queue_id]
                self.report.append(
                    f"{queue.directory}: cannot be read ({error.strerror}); moved to {target}"
                )
                queue = ConsumeQueue(topic, queue_id, self.geometry)
            self._put(queue)

    def cut(self, offset: int) -> int:
        """Drop what the log's bytes from `offset` on gave. How many queues lost something."""
        count = 0
        for queue in self._queues.values():
            before = queue.unwritten_bytes
            if queue.cut(self.open_files, offset):
                self._account(queue, before)
                self.dirty[queue] = None
                count += 1
        return count

    def begin_empty(self, topic: str, queue_id: int, next_index: int, minimum_offset: int) -> None:
        """A queue whose messages are all gone from the log, and that goes on at `next_index`."""
        queue = self._queues.get((topic, queue_id)) or self._make(topic, queue_id)
        if queue is None or queue.end >= next_index:
            return
        if not queue.has_messages or queue.end_offset <= minimum_offset:
            before = queue.unwritten_bytes
            queue.begin(next_index)
            self._account(queue, before)
            # Its files go with the next flush: RocketMQ would go on behind their last unit.
            self.dirty[queue] = None

    # --- growing ---

    def append(self, run: UnitRun, minimum_offset: int) -> ConsumeQueue | None:
        """Add a run; the queue it went to. Raises CorruptionError at a gap.

        None for a topic whose name cannot be a directory: its messages are in no queue.
        """
        queue = self._queues.get((run.topic, run.queue_id)) or self._make(run.topic, run.queue_id)
        if queue is None:
            return None
        before, unwritten_bytes = queue.end, queue.unwritten_bytes
        back = queue.append(run, minimum_offset)
        if back is not None:
            self.report.append(
                f"{queue.directory}: queue offsets go back from {back.end} to {back.first} at log "
                f"offset {back.physical_offset}; the newer messages took the places"
            )
        if queue.end != before or back is not None:
            self._account(queue, unwritten_bytes)
            self.dirty[queue] = None
        return queue

    def append_light(self, run: UnitRun, minimum_offset: int) -> ConsumeQueue | None:
        """`append` for a light queue: its offset is a text among the message's properties, and
        one that does not follow is passed over, and reported once for a queue."""
        queue = self._queues.get((run.topic, run.queue_id))
        if (
            queue is not None
            and queue.has_messages
            and queue.end_offset > minimum_offset
            and run.first_queue_offset != queue.end
        ):
            is_there = run.first_queue_offset < queue.end
            if not is_there and run.topic not in self._refused_topics:
                self._refused_topics.add(run.topic)
                self.report.append(
                    f"{queue.directory}: a message names the queue offset "
                    f"{run.first_queue_offset}, and {queue.end} follows: it is left out"
                )
            return None
        return self.append(run, minimum_offset)

    def wrote(self, queue: ConsumeQueue, version: int, upto: int, *, erased: bool) -> None:
        """`ConsumeQueue.wrote`, accounted for."""
        before = queue.unwritten_bytes
        queue.wrote(version, upto, erased=erased)
        self._account(queue, before)

    def _account(self, queue: ConsumeQueue, before: int) -> None:
        self.unwritten_bytes += queue.unwritten_bytes - before

    def mark_stale(self) -> None:
        """Everything with something stale behind its end is for the next flush."""
        for queue in self._queues.values():
            if queue.erase:
                self.dirty[queue] = None

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        if not can_be_directory(topic):
            if topic not in self._refused_topics:
                self._refused_topics.add(topic)
                self.report.append(
                    f"topic {topic[:160]!r} cannot be a directory: its messages are in no queue"
                )
            return None
        queue = ConsumeQueue(topic, queue_id, self.geometry)
        self._put(queue)
        return queue

    def _put(self, queue: ConsumeQueue) -> None:
        queue.floor = self._floors.get(queue.topic, {}).get(queue.queue_id, 0)
        self._queues[queue.topic, queue.queue_id] = queue
        self._order.append(queue)
        self._by_topic.setdefault(queue.topic, []).append(queue)

    # --- shrinking ---

    def with_spare_files(self, place: int, most: int) -> tuple[list[ConsumeQueue], int]:
        """Among up to `most` queues from a place on, in the order in which they came, those that
        have more files than the one with their end; and the place behind, 0 at the end."""
        units, following = self.geometry.units_per_file, place + most
        found = [
            queue for queue in self._order[place:following] if queue.first_unit + units < queue.end
        ]
        return found, following if following < len(self._order) else 0

    def expire(self, queue: ConsumeQueue, minimum_offset: int) -> bool:
        """Let go of whole files of messages below the log's minimum, never the last. Spec 4.3."""
        units_per_file = self.geometry.units_per_file
        first = queue.first_unit
        minimum = None
        while first + units_per_file < min(queue.end, queue.written + 1):
            if minimum is None:
                minimum = queue.retained(self.open_files, minimum_offset)
            if first + units_per_file > minimum:
                break
            first += units_per_file
        if first == queue.first_unit:
            return False
        queue.first_unit = first
        queue.first_index = max(queue.first_index, first)
        self.dirty[queue] = None
        return True


class Expiry:
    """Deletes files of messages that the log has deleted: looks at all queues, some at a time.
    Belongs to the engine's thread."""

    def __init__(self, queues: QueueTable, on_damage: Callable[[str], None]) -> None:
        self._queues = queues
        self._on_damage = on_damage
        self._found: list[ConsumeQueue] = []
        """Queues that may have files to let go of."""
        self._place: int | None = None
        """Those from here on have not been looked at; None: all have."""

    @property
    def is_busy(self) -> bool:
        return bool(self._found) or self._place is not None

    def begin(self) -> None:
        """The log's minimum has changed: look at all queues, from the first on."""
        self._found, self._place = [], 0

    def step(self, minimum: int) -> None:
        if not self._found and self._place is not None:
            self._found, following = self._queues.with_spare_files(self._place, LOOKED_AT_PER_STEP)
            self._place = following or None
        for queue in self._found[-EXPIRED_PER_STEP:]:
            try:
                self._queues.expire(queue, minimum)
            except CorruptionError as error:
                # Its files stay; a pull of what is in them gets the same error.
                self._on_damage(error.message)
        del self._found[-EXPIRED_PER_STEP:]
