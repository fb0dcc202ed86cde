"""One run of `produce`: sends until the input ends, something is not stored, or Ctrl-C comes."""

from collections.abc import Callable
from dataclasses import replace

from stratamq.cli.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED, code_of, lines_of
from stratamq.cli.message_input import MessageInput
from stratamq.cli.produce_tally import Tally
from stratamq.cli.reading_notes import note
from stratamq.client import Message, Producer
from stratamq.errors import InvalidRequestError, StrataError

ANSWERS_S = 10.0
"""So long a run that ended early waits for the answers to what it has sent."""
SOON_S = 0.5
_SHOWN_FAILURES = 10
Placing = Callable[[Message], tuple[int | None, str | None]]
"""The queue of a message, or the key by which its producer chooses one; None: any."""


class Sending:
    """`code`: the exit code of the run, known when it has ended. `next_line`: where another one can
    continue, None when everything is stored."""

    def __init__(self, producer: Producer, place: Placing | None) -> None:
        self.tally = Tally()
        self.code = 0
        self.next_line: int | None = None
        self._producer = producer
        self._place = place
        self._fault: StrataError | None = None
        self._interrupted = False
        self._line = 0
        """The one that is being sent."""
        self._end = 1
        """Behind the last line that was sent."""

    def run(self, given: MessageInput, advance: Callable[[int, int], None]) -> None:
        """Everything sent is settled afterwards."""
        try:
            self._send(given, advance)
            self._end = given.line + 1
        except StrataError as error:
            self._fault, self._end = error, max(given.line, 1)
        except OSError as error:
            reason = error.strerror or error
            self._fault = InvalidRequestError(f"behind line {given.line}: {reason}")
        except KeyboardInterrupt:
            self._interrupted = True
            if self._line >= self._end:
                self.tally.lose(self._line)
        ended_early = self._interrupted or self._fault is not None or bool(self.tally.failures)
        self._close(ANSWERS_S if ended_early else None)
        if self._interrupted:
            self.code = EXIT_INTERRUPTED
        elif self._fault is not None:
            self.code = code_of(self._fault)
        elif self.tally.failures:
            self.code = EXIT_ERROR
        if self.code:
            self.next_line = self.tally.next_line(self._end)

    def _send(self, given: MessageInput, advance: Callable[[int, int], None]) -> None:
        for one in given.messages(self._producer.largest_body_bytes()):
            message = one.message
            key: str | None = None
            if message.queue_id is None and self._place is not None:
                queue_id, key = self._place(message)
                message = replace(message, queue_id=queue_id)
            self._line = one.line
            try:
                delivery = self._producer.send_message(message, ordering_key=key)
            except InvalidRequestError as error:
                where = "" if given.whole else f"line {one.line}: "
                raise InvalidRequestError(f"{where}{error}") from error
            self.tally.add(one.line, delivery)
            self._end = one.line + 1
            self.tally.settle()
            if self.tally.failures:
                break
            advance(self.tally.sent, one.taken_bytes)

    def _close(self, limit_s: float | None) -> None:
        """Every message's own failure is in its delivery."""
        try:
            if limit_s is not None and not self._answered():
                note(f"waiting at most {limit_s:.0f} s for the answers to what was sent")
            self._producer.close(limit_s)
        except StrataError as error:
            if not self.tally.sent:
                self._fault = self._fault or error
        except KeyboardInterrupt:
            self._interrupted = True
        self.tally.settle()

    def _answered(self) -> bool:
        """At once, or nearly."""
        try:
            self._producer.flush(SOON_S)
        except StrataError:
            self.tally.settle()
            return not self.tally.waits
        return True

    def report(self, from_line: int, *, has_lines: bool) -> list[str]:
        """What went wrong, and where to continue. Empty when all is stored."""
        if not self.code:
            return []
        sentences = [] if self._fault is None else lines_of(self._fault)
        for sentence, (first, count) in list(self.tally.failures.items())[:_SHOWN_FAILURES]:
            which = f"line {first}" if has_lines else "the message"
            if count > 1:
                which = f"{count:,} messages that were sent together, from {which} on"
            sentences.append(f"error: {which}: {sentence}")
        if has_lines and (self.tally.sent or self._line or self._interrupted):
            sentences.append(self.tally.summary(from_line, self._end))
        elif self._interrupted:
            fates = [one.fate.value for one in self.tally.stretches]
            sentences.append(f"interrupted: the message is {fates[0] if fates else 'not stored'}")
        return sentences
