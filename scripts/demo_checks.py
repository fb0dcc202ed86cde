"""What the demo holds against what it sent. Every difference is a sentence; none means equal."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from demo_flights import Flight

from stratamq.client import ReceivedMessage, SendResult

TOPIC = "flights"
Place = tuple[int, int]
"""queue id, queue offset."""
SHOWN_DIFFERENCES = 5


def unique_key(number: int) -> str:
    """Return the key of flight `number`, so that every stored copy says which flight it is."""
    return f"{number:032X}"


@dataclass(slots=True)
class Ledger:
    """What the broker said about each flight that was sent."""

    acknowledged: dict[Place, int] = field(default_factory=dict)
    """Where the number of each flight was stored."""
    unanswered: set[int] = field(default_factory=set)
    """Sent, and the log died before it answered: perhaps stored."""
    not_sent: set[int] = field(default_factory=set)
    """Given to the producer, and still there when the log died."""

    def take(self, number: int, result: SendResult) -> None:
        self.acknowledged[result.queue_id, result.queue_offset] = number

    @property
    def to_send_again(self) -> list[int]:
        return sorted(self.unanswered | self.not_sent)


@dataclass(slots=True)
class ReadBack:
    """Everything the topic holds."""

    flights: Sequence[Flight]
    numbers: dict[Place, int] = field(default_factory=dict)
    stored_ms: dict[Place, int] = field(default_factory=dict)
    copies: Counter[int] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def take(self, message: ReceivedMessage) -> None:
        """The next message of its queue."""
        place = (message.queue_id, message.queue_offset)
        number, fault = recognise(message, self.flights)
        if fault:
            self.differences.append(fault)
            return
        self.numbers[place] = number
        self.stored_ms[place] = message.store_timestamp_ms
        self.copies[number] += 1

    @property
    def duplicates(self) -> int:
        return sum(self.copies.values()) - len(self.copies)

    def missing(self, ledger: Ledger) -> list[Place]:
        """Places whose message was acknowledged, and where nothing is."""
        return [place for place in ledger.acknowledged if place not in self.numbers]

    def compare(self, ledger: Ledger) -> list[str]:
        """Checked against what was acknowledged: at most a few sentences."""
        moved = [
            place
            for place, number in ledger.acknowledged.items()
            if self.numbers.get(place, number) != number
        ]
        lost = [n for n in range(len(self.flights)) if not self.copies[n]]
        unexplained = [
            n for n, count in self.copies.items() if count > 1 and n not in ledger.unanswered
        ]
        gaps = [
            (queue, offset)
            for queue, offset in self.numbers
            if offset and (queue, offset - 1) not in self.numbers
        ]
        found = list(self.differences[:SHOWN_DIFFERENCES])
        for what, items in (
            ("acknowledged and not there", self.missing(ledger)),
            ("acknowledged there, and another lies there", moved),
            ("flights that nothing is left of", lost),
            ("stored twice without a reason", unexplained),
            ("with a gap before it", gaps),
        ):
            if items:
                found.append(f"{len(items)} {what}, the first: {items[0]}")
        return found

    def places_with_key(self, key: str) -> set[Place]:
        return {p for p, number in self.numbers.items() if key in self.flights[number].keys}

    def span_of_hour(self, hour: str) -> tuple[int, int]:
        """When the first and the last flight of an hour were stored, milliseconds."""
        stamps = [
            self.stored_ms[place]
            for place, number in self.numbers.items()
            if self.flights[number].hour == hour
        ]
        return min(stamps), max(stamps)

    def places_stored_between(self, begin_ms: int, end_ms: int) -> set[Place]:
        """Both inclusive."""
        return {place for place, stamp in self.stored_ms.items() if begin_ms <= stamp <= end_ms}


def recognise(message: ReceivedMessage, flights: Sequence[Flight]) -> tuple[int, str]:
    """Which flight a message is, and what differs from it; "" when nothing does."""
    where = f"queue {message.queue_id}, offset {message.queue_offset}"
    try:
        number = int(message.unique_key, 16)
        flight = flights[number]
    except (ValueError, IndexError):
        return -1, f"{where}: {message.unique_key!r} is none of ours"
    for name, stored, sent in (
        ("topic", message.topic, TOPIC),
        ("body", message.body, flight.body),
        ("tag", message.tag, flight.origin),
        ("keys", tuple(message.keys), flight.keys),
    ):
        if stored != sent:
            return number, f"{where}: the {name} is {stored!r:.80}, sent was {sent!r:.80}"
    return number, ""


def compare_answer(
    messages: Iterable[ReceivedMessage], expected: set[Place], flights: Sequence[Flight]
) -> tuple[int, list[str]]:
    """How many messages a query gave, and how they differ from those that it should give."""
    faults = []
    seen: Counter[Place] = Counter()
    for message in messages:
        seen[message.queue_id, message.queue_offset] += 1
        _, fault = recognise(message, flights)
        if fault:
            faults.append(fault)
    for what, items in (
        ("not found", expected - set(seen)),
        ("found, and do not belong there", set(seen) - expected),
        ("found twice", {place for place, count in seen.items() if count > 1}),
    ):
        if items:
            faults.append(f"{len(items)} {what}, one of them: {min(items)}")
    return sum(seen.values()), faults[:SHOWN_DIFFERENCES]
