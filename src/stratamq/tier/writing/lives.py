"""The last life of each queue in a log: a queue whose offsets go back has been restarted."""

from dataclasses import dataclass

from stratamq.formats.dispatch import DispatchColumns
from stratamq.formats.queue_units import decode_units, unit_runs
from stratamq.tier.writing.intake import QueueKey


@dataclass(frozen=True, slots=True)
class Life:
    """A queue's life within a stretch of the log: the queue offset and log offset of its first
    message, the queue offset after its last, and the log offset at which the queue restarted, if it
    did."""

    first: int
    place: int
    end: int
    begins: int | None = None


class Lives:
    """Stretches of a log, joined in the log's order."""

    def __init__(self) -> None:
        self.found: dict[QueueKey, Life] = {}

    @property
    def begins(self) -> dict[QueueKey, int]:
        """Return, for the queues that restarted, the log offsets at which their last lives
        begin.
        """
        return {key: life.begins for key, life in self.found.items() if life.begins is not None}

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.found}

    def add(self, columns: DispatchColumns) -> None:
        """The frames that follow."""
        for run in unit_runs(columns):
            first, place = run.first_queue_offset, decode_units(run.units)["physical_offset"][0]
            self.join((run.topic, run.queue_id), Life(first, int(place), first + run.count))

    def join(self, key: QueueKey, later: Life) -> None:
        """The stretch that follows."""
        known = self.found.get(key)
        if known is None:
            self.found[key] = later
            return
        begins = known.begins
        if later.begins is not None:
            begins = later.begins
        elif later.first < known.end:
            begins = later.place
        self.found[key] = Life(known.first, known.place, later.end, begins)
