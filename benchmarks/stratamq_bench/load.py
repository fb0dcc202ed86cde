"""The messages of every benchmark: which they are, where they go, and whether they were stored.

Incompressible bodies, one unique key and one tag each; *uneven* messages have bodies of all sizes,
keys, and properties of their own, as those of most users do. A message has a number; its body
follows from the number, and its unique key is the number. A fast wrong answer is a failure.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stratamq.client import Client, ReceivedMessage, Topic
from stratamq.formats.batch_frames import Row

RUN_MESSAGES = 16
"""Messages that go to one queue before the next has its turn: 256 in a batch fill 16 queues."""
FOUND_BY_KEY = 32
PULLED = 64
_DISTINCT_BODIES, _DISTINCT_TEXTS = 1024, 1021


class Mismatch(AssertionError):
    """What was stored or read back is not what was sent: the figures are worth nothing."""


@dataclass(frozen=True, slots=True)
class Places:
    """The queues that messages go to in turn, so many at a time each."""

    topics: int = 4
    queues: int = 4
    """The number of queues in each topic."""
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
    uneven: bool = False
    """Bodies have this size in the mean."""
    _bodies: list[bytes] = field(init=False)
    _texts: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        source = random.Random(self.body_bytes)
        sizes = [self.body_bytes] * _DISTINCT_BODIES
        self._texts = [b"TAGS\x01TagA"]
        if self.uneven:
            sizes = [source.randint(1, 2 * self.body_bytes - 1) for _ in sizes]
            self._texts = [_uneven_text(source) for _ in range(_DISTINCT_TEXTS)]
        self._bodies = [source.randbytes(size) for size in sizes]

    def body(self, number: int) -> bytes:
        return self._bodies[number % _DISTINCT_BODIES]

    def rows(self, count: int = RUN_MESSAGES) -> list[Row]:
        first = self.next_number
        self.next_number += count
        body, texts = self.body, self._texts
        return [
            (body(number), b"%b\x02UNIQ_KEY\x01%032X" % (texts[number % len(texts)], number))
            for number in range(first, first + count)
        ]

    def check(self, message: ReceivedMessage) -> None:
        """Mismatch unless the body is the one that belongs to the message's unique key."""
        if message.body != self.body(int(message.unique_key, 16)):
            raise Mismatch(f"{message!r} carries another body than was sent")


def _uneven_text(source: random.Random) -> bytes:
    """One to three keys, a tag, and up to six more properties."""
    keys = [f"order-{source.randrange(10 ** source.randrange(2, 9))}" for _ in range(3)]
    items = {"KEYS": " ".join(keys[: source.randint(1, 3)]), "TAGS": "Tag" * source.randint(1, 4)}
    for _ in range(source.randrange(7)):
        items[f"property-{source.randrange(20)}"] = "v" * source.randint(1, 30)
    return "\x02".join(f"{name}\x01{value}" for name, value in items.items()).encode()


@dataclass(slots=True)
class SenderState:
    """Where a client ended: the next one continues there. `next_offsets` as `Places.in_turn`."""

    next_number: int
    next_offsets: list[int]
    samples: list[tuple[int, int]]
    """(physical offset, message number) of some of the last client's."""

    @classmethod
    def load(cls, file: Path, places: Places) -> "SenderState":
        if file.exists():
            return cls(**json.loads(file.read_text()))
        return cls(0, [0] * len(places.in_turn), [])

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))


def put_topics(client: Client, places: Places) -> None:
    for name in places.topic_names:
        client.admin.put_topic(Topic(name, places.queues, places.queues))


def check_stored(
    client: Client, state: SenderState, load: Load, places: Places, *, followers: bool
) -> None:
    """Counts, ends of queues, bodies and keys of samples. Mismatch."""
    if state.next_number <= 0:
        raise Mismatch("nothing was stored")
    if sum(state.next_offsets) != state.next_number:
        raise Mismatch(
            f"{state.next_number} messages were sent, the queues hold {sum(state.next_offsets)}"
        )
    for physical_offset, number in state.samples:
        message = client.message_at(physical_offset)
        load.check(message)
        if int(message.unique_key, 16) != number:
            raise Mismatch(f"{message!r} has number {message.unique_key}, not {number}")
    if followers:
        check_queues(client, places.in_turn, state.next_offsets, load)
        check_index(client, state)


def check_queues(
    client: Client, queues: Sequence[tuple[str, int]], ends: Sequence[int], load: Load
) -> None:
    """Every queue ends where it should, and the last message of some is the right one."""
    stored = {(queue.topic, queue.queue_id): queue.max_offset for queue in client.queues()}
    for queue, expected in zip(queues, ends, strict=True):
        if stored.get(queue, 0) != expected:
            raise Mismatch(f"{queue} holds {stored.get(queue)} messages, not {expected}")
    some = list(zip(queues, ends, strict=True))
    for (topic, queue_id), expected in some[:: max(1, len(some) // PULLED)]:
        if expected:
            (message,) = client.pull(topic, queue_id, expected - 1, max_messages=1).messages
            if (message.queue_id, message.queue_offset) != (queue_id, expected - 1):
                raise Mismatch(f"{topic}/{queue_id} answers {expected - 1} with {message!r}")
            load.check(message)


def check_index(client: Client, state: SenderState) -> None:
    """Samples are found by their unique key, once."""
    for physical_offset, _ in state.samples[:FOUND_BY_KEY]:
        message = client.message_at(physical_offset)
        found = client.query_unique_key(message.topic, message.unique_key)
        if [one.physical_offset for one in found.messages] != [physical_offset]:
            raise Mismatch(f"the index finds {found.messages} for {message.unique_key}")
