"""How far recovery is, how fast it goes and when it will be done: for health, log and people."""

import logging

from stratamq.files.port import Clock

log = logging.getLogger(__name__)

LOG_EVERY_NS = 5_000_000_000
_MIB = 1 << 20


class Progress:
    """Called from the thread that recovers; `text` may be read from any."""

    def __init__(self, clock: Clock) -> None:
        self.text = "starting"
        """One sentence for people."""
        self._clock = clock
        self._began_ns = clock.monotonic_ns()
        self._first_bytes: int | None = None
        self._logged_ns = self._began_ns

    def update(self, done_bytes: int, total_bytes: int) -> None:
        """Recovery has come to `done_bytes` of `total_bytes`, counted from the log's minimum."""
        now = self._clock.monotonic_ns()
        if self._first_bytes is None:
            # What is below is known to be good and was not read.
            self._first_bytes, self._began_ns = done_bytes, now
        self.text = f"recovered {done_bytes // _MIB} of {total_bytes // _MIB} MiB"
        seconds = (now - self._began_ns) / 1e9
        rate = (done_bytes - self._first_bytes) / seconds if seconds else 0.0
        if rate > 0:
            left = max(0, total_bytes - done_bytes) / rate
            self.text += f", {rate / _MIB:.0f} MiB/s, {left:.0f} s left"
        if now - self._logged_ns >= LOG_EVERY_NS:
            self._logged_ns = now
            log.info(
                "recovering",
                extra={"done": done_bytes, "total": total_bytes, "bytes_per_s": round(rate)},
            )
