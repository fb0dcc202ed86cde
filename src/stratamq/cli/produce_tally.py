"""What became of the lines that `produce` has sent, and from which line it can continue."""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from stratamq.client import Delivery
from stratamq.errors import StrataError


class Fate(Enum):
    STORED = "stored"
    PERHAPS = "perhaps stored"
    NOT = "not stored"


@dataclass(slots=True)
class LineRange:
    """Lines [first, last] with messages of one fate; lines in between may have none."""

    fate: Fate
    first: int
    last: int
    messages: int


class Tally:
    """Takes deliveries in the order of their lines, and gives up each when it is settled. `stored`
    counts messages; `unconfirmed` those among them that are not as safe as configured."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        self.unconfirmed = 0
        self.bytes = 0
        self.failures: dict[str, tuple[int, int]] = {}
        """By the sentence: the first line that failed with it, and how many messages did."""
        self.stretches: list[LineRange] = []
        self._waiting: deque[tuple[int, Delivery]] = deque()

    def add(self, line: int, delivery: Delivery) -> None:
        self._waiting.append((line, delivery))
        self.sent += 1

    @property
    def waits(self) -> bool:
        """Something is not answered."""
        return bool(self._waiting)

    def settle(self) -> None:
        """Take up what was answered, as far as all before it was."""
        waiting = self._waiting
        while waiting and waiting[0][1].done:
            line, delivery = waiting[0]
            if not self.stretches or line > self.stretches[-1].last:
                self._settle(line, delivery)
            waiting.popleft()

    def lose(self, line: int) -> None:
        """The line was being sent when it was interrupted: nothing else is known."""
        if all(line != number for number, _ in self._waiting):
            self.sent += 1
            self._extend(Fate.PERHAPS, line)

    def _settle(self, line: int, delivery: Delivery) -> None:
        try:
            result = delivery.result()
        except StrataError as error:
            sentence = " ".join(str(error).split())
            first, count = self.failures.get(sentence, (line, 0))
            self.failures[sentence] = (first, count + 1)
            self._extend(Fate.PERHAPS if error.fields.get("perhaps_stored") else Fate.NOT, line)
            return
        self._extend(Fate.STORED, line)
        self.stored += 1
        self.bytes += result.size
        self.unconfirmed += result.status.name != "PUT_OK"

    def _extend(self, fate: Fate, line: int) -> None:
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.fate is fate:
            last.last = line
            last.messages += 1
        else:
            self.stretches.append(LineRange(fate, line, line, 1))

    # --- where to continue ---

    def next_line(self, end: int) -> int:
        """The first line that is not known to be stored; `end` when all that was sent is."""
        return next((one.first for one in self.stretches if one.fate is not Fate.STORED), end)

    def summary(self, from_line: int, end: int) -> str:
        """Which lines are stored, when it ended before line `end`, and how to go on."""
        begin = self.next_line(end)
        known = "nothing of this run is stored"
        if begin > from_line:
            known = f"{_lines(from_line, begin - 1)} stored"
        sentences = [f"{known}; continue with --from-line {begin}"]
        again = [one for one in self.stretches if one.first >= begin and one.fate is not Fate.NOT]
        for one in again:
            sentences.append(f"{_lines(one.first, one.last)} {one.fate.value}")
        if again:
            twice = sum(one.messages for one in again)
            sentences.append(f"so up to {twice:,} messages are then stored twice")
        return "; ".join(sentences)


def _lines(first: int, last: int) -> str:
    return f"line {first} is" if first == last else f"lines {first} to {last} are"
