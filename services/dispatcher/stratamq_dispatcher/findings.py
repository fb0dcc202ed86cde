"""What was found and done since the start, a line each."""

import logging

from stratamq.errors import CorruptionError

log = logging.getLogger(__name__)

REPORT_LINES = 200
"""More is cut off: a damaged directory can have thousands of findings."""


class Findings:
    """Grows by lines; damage is listed once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, *lines: str) -> None:
        self._lines += lines

    def add_damage(self, error: CorruptionError) -> None:
        """A read met damage: it is listed and logged once."""
        if error.message not in self._lines and len(self._lines) < REPORT_LINES:
            self._lines.append(error.message)
            log.error("damage", extra={"error": error.message})

    def lines(self, further: list[str]) -> list[str]:
        """With `further` behind them, at most REPORT_LINES and one that counts the rest."""
        lines = self._lines + further
        if len(lines) > REPORT_LINES:
            lines = [*lines[:REPORT_LINES], f"and {len(lines) - REPORT_LINES} more"]
        return lines
