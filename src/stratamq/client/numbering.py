"""How a producer numbers its messages, so that the log knows what is sent again."""

import os
from dataclasses import dataclass, replace

from stratamq.files.port import Random


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The log had come so far, in this generation of it: what is sent from now on lies behind, or
    in a later generation."""

    generation: int
    offset: int

    def reached(self, offset: int) -> "LogPlace":
        """The same, or further on."""
        return self if offset <= self.offset else replace(self, offset=offset)


@dataclass(frozen=True, slots=True)
class SendNumbers:
    """How the log recognises the messages of one call: the producer's number, the first message's
    sequence, and where the log was, at least, at the first unanswered attempt."""

    producer: int
    first: int
    sent_from: LogPlace


class Numbering:
    """A producer's number, at random, and the sequence of its next message. Not thread-safe; the
    child of a fork has a number of its own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._producer = self._random.getrandbits(64) or 1
        self._following = 0

    @property
    def producer(self) -> int:
        if self._pid != os.getpid():
            self._begin()
        return self._producer

    def take(self, count: int) -> int:
        """Sequences for so many messages: the first of them."""
        if self._pid != os.getpid():
            self._begin()
        first = self._following
        self._following = first + count
        return first
