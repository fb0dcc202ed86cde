"""What Prometheus sees of the log. Totals are brought up to date by `observe`, once a second."""

from stratamq.service.metrics import counter, gauge, histogram
from stratamq_commitlog.engine import CommitLog

MESSAGES = counter("commitlog_appended_messages", "Messages appended since the start.")
BYTES = counter("commitlog_appended_bytes", "Bytes of frames appended since the start.")
PASSES = counter("commitlog_passes", "Append passes since the start.")
ROLLED = counter("commitlog_rolled_segments", "Segments rolled since the start.")
REFUSED = counter("commitlog_refused_appends", "Appends refused, by the error's class.", ["error"])
FLUSH_SECONDS = histogram("commitlog_flush_seconds", "Time of each flush.")
OFFSET = gauge(
    "commitlog_offset_bytes", "The log's offsets: minimum, appended, flushed, confirmed.", ["kind"]
)
PENDING = gauge("commitlog_pending_bytes", "Bytes that wait to be appended.")
SEGMENTS = gauge("commitlog_segments", "Segments of the log.")
WRITABLE = gauge("commitlog_writable", "1 while appends are taken.")
FLUSH_FAILED = gauge("commitlog_flush_failed", "1 after a flush failed; only a restart clears it.")
DISK_USED = gauge("commitlog_disk_used_ratio", "Used part of the volume.")
FOLLOWER_LAG = gauge(
    "commitlog_follower_lag_bytes", "How far a follower's applied position is behind.", ["follower"]
)
FOLLOWER_CONNECTED = gauge(
    "commitlog_follower_connected", "Streams a follower has open.", ["follower"]
)
SCRUBBED = counter("commitlog_scrubbed_bytes", "Bytes that the scrubber has read and verified.")
SCRUB_POSITION = gauge(
    "commitlog_scrub_position_bytes", "Up to where the scrubber's pass has come."
)
SCRUB_PASSES = gauge("commitlog_scrub_passes", "Passes that the scrubber has ended.")
DAMAGED_STRETCHES = gauge(
    "commitlog_damaged_stretches", "Stretches of the log whose bytes are not what was written."
)
DAMAGED_BYTES = gauge("commitlog_damaged_bytes", "The bytes of these stretches.")
CLOCK_AHEAD = gauge(
    "commitlog_clock_ahead_seconds",
    "By how much the wall clock is ahead of the log's own time while it is not believed.",
)
DISK_WAIT = gauge(
    "commitlog_disk_wait_seconds",
    "For how long the present task of a worker has been waiting for the disk.",
    ["lane"],
)
RECOVERED = gauge("commitlog_recovery_progress_bytes", "How far recovery has come.")


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: CommitLog) -> None:
        self._engine = engine
        self._seen = [0, 0, 0, 0]
        self._refused: dict[str, int] = dict(engine.gate.refused)
        self._scrubbed = 0
        engine.commit.observe_flush_ns = lambda elapsed: FLUSH_SECONDS.observe(elapsed / 1e9)

    def observe(self) -> None:
        engine = self._engine
        counters = engine.appender.counters
        now = [counters.messages, counters.bytes, counters.passes, counters.segments_rolled]
        for metric, total, seen in zip(
            (MESSAGES, BYTES, PASSES, ROLLED), now, self._seen, strict=True
        ):
            metric.inc(total - seen)
        self._seen = now
        for name, total in engine.gate.refused.items():
            REFUSED.labels(name).inc(total - self._refused.get(name, 0))
            self._refused[name] = total
        offsets = engine.offsets
        for kind in ("minimum", "appended", "flushed", "confirmed"):
            OFFSET.labels(kind).set(getattr(offsets, kind))
        PENDING.set(engine.appender.pending_bytes)
        SEGMENTS.set(len(engine.segments.offsets))
        WRITABLE.set(engine.writable[0])
        FLUSH_FAILED.set(engine.commit.failure is not None)
        DISK_USED.set(engine.gate.disk_used_ratio)
        CLOCK_AHEAD.set(engine.store_clock.ahead_ms / 1000)
        scrubber = engine.scrubber
        SCRUBBED.inc(scrubber.read_bytes - self._scrubbed)
        self._scrubbed = scrubber.read_bytes
        SCRUB_POSITION.set(scrubber.state.position)
        SCRUB_PASSES.set(scrubber.state.passes)
        DAMAGED_STRETCHES.set(len(scrubber.state.damage))
        DAMAGED_BYTES.set(sum(one.end - one.start for one in scrubber.state.damage))
        for name, state in engine.hub.followers.items():
            FOLLOWER_LAG.labels(name).set(max(0, offsets.confirmed - state.applied))
            FOLLOWER_CONNECTED.labels(name).set(state.connections)
