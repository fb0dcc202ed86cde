"""What a slave reports of following its master, and why it leaves it."""

import logging
from dataclasses import dataclass

from stratamq_ha import metrics


class MasterLeft(Exception):
    """The connection is given up. `reason` is one constant word."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


@dataclass(slots=True)
class FollowingStatus:
    """What the status reports of it. Offsets of the log."""

    connected: bool = False
    problem: str = ""
    appended: int = 0
    received: int = 0
    heard_ms: int = 0
    """Wall clock; 0: never."""
    bytes_per_second: float = 0.0
    needs_resync: bool = False


log = logging.getLogger(__name__)


class Standstill:
    """Why a slave's log does not take what its master sends, remembered from one connection to the
    next. The slave shows it, and opens with it, so that its master shows it too and does not count
    it. `problem` is empty while the slave gets on.

    A log that is opened again, or has just changed its role, refuses once and takes the same bytes
    a moment later: what fails twice at the same place is a standstill."""

    def __init__(self) -> None:
        self.problem = ""
        self._failed_at = -1
        self._unanswered = False

    def problem_to_report(self) -> str:
        """What the next opening says of it: nothing after an opening with it was not answered,
        because a master of an earlier version does not read that."""
        self._unanswered = bool(self.problem) and not self._unanswered
        return self.problem if self._unanswered else ""

    def answered(self) -> None:
        """The master has read the opening."""
        self._unanswered = False

    def failed(self, offset: int, reason: str) -> None:
        """The log still ends at `offset`, and has not taken what comes there."""
        first, self._failed_at = offset != self._failed_at, offset
        if first:
            return
        problem = f"this log does not take its master's bytes from {offset} on: {reason}"
        if problem != self.problem:
            log.error("slave stalled", extra={"offset": offset, "reason": reason})
        self._is(problem)

    def over(self) -> None:
        """The log has taken something, or has all there is."""
        if self.problem:
            log.warning("slave resumed", extra={"offset": self._failed_at})
        self._failed_at = -1
        self._is("")

    def _is(self, problem: str) -> None:
        self.problem = problem
        metrics.STANDS_STILL.set(bool(problem))
