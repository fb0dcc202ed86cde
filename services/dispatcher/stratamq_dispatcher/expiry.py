"""Files of messages that the log has let go of: all queues are looked at, some at a time."""

from collections.abc import Callable

from stratamq.errors import CorruptionError
from stratamq_dispatcher.consume_queue import ConsumeQueue
from stratamq_dispatcher.queue_table import QueueTable

EXPIRED_PER_STEP = 64
LOOKED_AT_PER_STEP = 5_000
"""So many queues are asked for files to expire: less than a millisecond."""


class Expiry:
    """Belongs to the engine's thread."""

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
