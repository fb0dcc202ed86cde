"""The messages of every benchmark: which they are, where they go, and how to recognise one.

Incompressible bodies, one unique key and one tag each. A message has a number; its body follows
from the number, and its unique key is the number.
"""

import random
from dataclasses import dataclass, field

from stratamq.client import ReceivedMessage
from stratamq.formats.batch_frames import Row
from stratamq_bench.checks import Mismatch

RUN_MESSAGES = 16
"""Messages that go to one queue before the next has its turn: 256 in a batch fill 16 queues."""
_DISTINCT_BODIES = 1024


@dataclass(frozen=True, slots=True)
class Places:
    """The queues that messages go to in turn, so many at a time each."""

    topics: int = 4
    queues: int = 4
    """Of each topic."""
    run_messages: int = RUN_MESSAGES

    @property
    def topic_names(self) -> list[str]:
        return [f"bench-{number}" for number in range(self.topics)]

    @property
    def in_turn(self) -> list[tuple[str, int]]:
        """(topic, queue id): all topics before any topic's next queue."""
        names = self.topic_names
        return [(name, queue) for queue in range(self.queues) for name in names]


@dataclass(slots=True)
class Load:
    """Messages `next_number`, +1, +2, …, the same in every process that is given the same seed."""

    body_bytes: int
    next_number: int = 0
    _bodies: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        source = random.Random(self.body_bytes)
        self._bodies = [source.randbytes(self.body_bytes) for _ in range(_DISTINCT_BODIES)]

    def body(self, number: int) -> bytes:
        return self._bodies[number % _DISTINCT_BODIES]

    def rows(self, count: int = RUN_MESSAGES) -> list[Row]:
        first = self.next_number
        self.next_number += count
        body = self.body
        return [
            (body(number), b"TAGS\x01TagA\x02UNIQ_KEY\x01%032X" % number)
            for number in range(first, first + count)
        ]

    def check(self, message: ReceivedMessage) -> None:
        """Mismatch unless the body is the one that belongs to the message's unique key."""
        if message.body != self.body(int(message.unique_key, 16)):
            raise Mismatch(f"{message!r} carries another body than was sent")
