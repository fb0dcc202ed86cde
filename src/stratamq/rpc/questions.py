"""Questions to several addresses at once, and how long each is waited for.

No I/O: a plan yields the questions of one `Turn`, and is sent the answers that have come since, of
this turn or of an earlier one. An address whose host is gone drops packets: its questions end after
seconds. It holds up one plan; then it is *silent*, and asked beside the others, until it answers.
"""

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.rpc.methods import Method

R = TypeVar("R")

LONGEST_ANSWER_S = 3.0
"""So long each question waits."""
GRACE_S = 0.25
"""How long a plan waits for what it could do without: many times a broker's response time."""
MAX_SILENT = 4_096
"""Addresses that are remembered."""


@dataclass(frozen=True, slots=True)
class Question:
    address: str
    method: Method
    request: Any

    @property
    def key(self) -> tuple[str, Method]:
        return self.address, self.method


Reply = Any
"""What the service answers, or the StrataError instead."""
Answers = list[tuple[Question, Reply]]


@dataclass(frozen=True, slots=True)
class Turn:
    """`questions` are asked at once, beside those that are not answered yet. The plan goes on with
    the first answers to any of them; with none after `wait_s` (None: as long as a question waits).
    """

    questions: Sequence[Question]
    wait_s: float | None = None


Plan = Generator[Turn, Answers, R]


class Silence:
    """The addresses that have not answered in time since they answered last. Thread-safe."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, None] = dict.fromkeys(addresses)

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(list(self._addresses))

    def late(self, address: str) -> None:
        with self._lock:
            self._addresses[address] = None
            if len(self._addresses) > MAX_SILENT:
                del self._addresses[next(iter(self._addresses))]

    def heard(self, question: Question, reply: Reply) -> None:
        """Record a response, including those that arrive after the caller stopped waiting. An error
        is not one: it may come from the attempt to connect."""
        if not isinstance(reply, StrataError):
            with self._lock:
                self._addresses.pop(question.address, None)


class PendingQuestions:
    """The questions of one plan that are not answered yet."""

    def __init__(self, silence: Silence, clock: Clock) -> None:
        self._silence = silence
        self._clock = clock
        self._since_ns: dict[tuple[str, Method], int] = {}
        self._enough_ns: int | None = None

    def begin(self, questions: Iterable[Question]) -> None:
        now_ns = self._clock.monotonic_ns()
        self._since_ns |= dict.fromkeys((one.key for one in questions), now_ns)

    def waits_for(self, question: Question) -> bool:
        return question.key in self._since_ns

    def end(self, answers: Answers) -> None:
        """These were answered."""
        now_ns = self._clock.monotonic_ns()
        for question, reply in answers:
            since_ns = self._since_ns.pop(question.key)
            if isinstance(reply, StrataError) and now_ns - since_ns >= GRACE_S * 1e9:
                self._silence.late(question.address)

    def enough(self, *, found: bool) -> None:
        """Whether the plan has what it looks for: all others are waited for `GRACE_S` from now on,
        and silent ones not at all."""
        if not found:
            self._enough_ns = None
        elif self._enough_ns is None:
            self._enough_ns = self._clock.monotonic_ns()

    def wait_s(self, *, patient: bool) -> float | None:
        """For how long to wait for the next answer, 0: for none; None: as long as a question waits.
        `patient`: for silent addresses as for others."""
        silent = [since_ns for key, since_ns in self._since_ns.items() if key[0] in self._silence]
        others = len(self._since_ns) > len(silent)
        if self._enough_ns is not None:
            return self._grace_left_s(self._enough_ns) if others else 0.0
        if others or (patient and silent):
            return None
        return max(map(self._grace_left_s, silent), default=0.0)

    def _grace_left_s(self, begin_ns: int) -> float:
        return max(0.0, GRACE_S - (self._clock.monotonic_ns() - begin_ns) / 1e9)

    def give_up(self) -> list[str]:
        """The plan is over: the addresses that have not answered, silent from now on."""
        left = list(dict.fromkeys(address for address, _ in self._since_ns))
        for address in left:
            self._silence.late(address)
        return left


def unanswered(address: str) -> UnavailableError:
    """The error for an address that was not waited for."""
    error = UnavailableError(f"no answer from {address} yet")
    error.fields["status"] = "DEADLINE_EXCEEDED"
    return error


def ask_all(questions: Sequence[Question]) -> Plan[list[Reply]]:
    """The replies to all of them, in order."""
    replies: dict[tuple[str, Method], Reply] = {}
    new = questions
    while len(replies) < len(questions):
        answers = yield Turn(new)
        replies |= {question.key: reply for question, reply in answers}
        new = ()
    return [replies[one.key] for one in questions]
