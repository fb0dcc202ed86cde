"""The log as calls get it: none while it is being opened, or opened again."""

from stratamq.errors import UnavailableError
from stratamq_commitlog.engine import CommitLog


class ServedLog:
    """`opening` says how far recovery is; "": the log is open."""

    def __init__(self, log: CommitLog, opening: str = "starting") -> None:
        self.opening = opening
        self._log = log

    def get(self) -> CommitLog:
        """UnavailableError while the log is being opened."""
        if self.opening:
            raise UnavailableError(f"the log is being opened: {self.opening}")
        return self._log

    @property
    def now(self) -> CommitLog | None:
        """The log; None while it is being opened."""
        return None if self.opening or not self._log.gate.open else self._log
