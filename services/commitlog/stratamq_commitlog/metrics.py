"""What Prometheus sees of the log. Totals are brought up to date by `observe`, once a second."""

import math

from stratamq.files.port import Clock
from stratamq.formats.log_state import Role
from stratamq.service.metrics import Totals, counter, gauge, histogram, times
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.replica.lag_marks import LagMarks
from stratamq_commitlog.write.append_times import PARTS, WHOLE

_RATE = "How much comes in?"
_LATENCY = "How long does an append take, and where?"
_REFUSED = "Does the log take messages, and if not, why?"
_FLUSH = "How long does the disk take to make bytes durable?"
_BEHIND = "How far are the followers behind: dispatcher, index, tier?"
_SLAVES = "How far are the slaves behind?"
_DISK = "How full is the volume, and when will it be full?"
_RECOVERY = "How far is recovery, and how long did it take?"
_SCRUB = "Are the stored bytes what was written?"
_SIZE = "What does the log hold?"

MESSAGES = counter("commitlog_appended_messages", "Messages appended since the start.", asks=_RATE)
BYTES = counter("commitlog_appended_bytes", "Bytes of frames appended since the start.", asks=_RATE)
PASSES = counter("commitlog_passes", "Append passes since the start.", asks=_RATE)
PENDING = gauge("commitlog_pending_bytes", "Bytes waiting to be appended.", asks=_RATE)
APPEND_SECONDS = times(
    "commitlog_append_seconds",
    "Append latency, one observation per pass: that of the append that waited longest."
    " `whole`: from its arrival in the log to its response; its parts: `queue` until "
    "the pass began, `write` for the pass, `flush` until it was durable (SYNC_FLUSH), "
    "`replicas` until enough slaves had it (SYNC_MASTER).",
    "part",
    (WHOLE, *PARTS),
    asks=_LATENCY,
)
FLUSH_SECONDS = histogram("commitlog_flush_seconds", "Duration of each flush.", asks=_FLUSH)
FLUSH_FAILED = gauge(
    "commitlog_flush_failed", "1 after a flush failed; only a restart clears it.", asks=_REFUSED
)
REFUSED = counter(
    "commitlog_refused_appends",
    "Appends refused, by error class.",
    ["error"],
    asks=_REFUSED,
)
WRITABLE = gauge("commitlog_writable", "1 while appends are taken.", asks=_REFUSED)
OFFSET = gauge(
    "commitlog_offset_bytes",
    "The log's offsets: minimum, appended, flushed, confirmed.",
    ["kind"],
    asks=_SIZE,
)
SEGMENTS = gauge("commitlog_segments", "Segments of the log.", asks=_SIZE)
ROLLED = counter("commitlog_rolled_segments", "Segments rolled since the start.", asks=_SIZE)
DISK_USED = gauge("commitlog_disk_used_ratio", "Used fraction of the fullest volume.", asks=_DISK)
VOLUME_USED = gauge(
    "commitlog_volume_used_ratio",
    "Used fraction of each volume of the store, by what is on it: commitlog (which "
    "includes the others unless they are mounts), `.` (the directory itself), "
    "consumequeue, index.",
    ["part"],
    asks=_DISK,
)
DISK_FULL = gauge(
    "commitlog_disk_full",
    "1 while messages are refused because the volume is too full: from "
    "commitlog.disk_refuse_ratio on, down to commitlog.disk_resume_ratio.",
    asks=_DISK,
)
DISK_FULL_IN = gauge(
    "commitlog_disk_full_seconds",
    "Forecast of the time until commitlog.disk_refuse_ratio is reached, from the "
    "growth of the last two hours; +Inf: usage does not grow; NaN: observed for less "
    "than ten minutes.",
    asks=_DISK,
)
FOLLOWER_LAG = gauge(
    "commitlog_follower_lag_bytes",
    "Confirmed bytes of the log that a follower has not applied.",
    ["follower"],
    asks=_BEHIND,
)
FOLLOWER_LAG_MESSAGES = gauge(
    "commitlog_follower_lag_messages",
    "The same in messages, without those stored before the start of the log service.",
    ["follower"],
    asks=_BEHIND,
)
FOLLOWER_LAG_SECONDS = gauge(
    "commitlog_follower_lag_seconds",
    "Time for which a follower has had something to apply, since the start of the log service.",
    ["follower"],
    asks=_BEHIND,
)
FOLLOWER_CONNECTED = gauge(
    "commitlog_follower_connected", "Open streams of a follower.", ["follower"], asks=_BEHIND
)
SLAVE_LAG_MESSAGES = gauge(
    "commitlog_slave_lag_messages",
    "Messages that a connected slave has not acknowledged, counted like "
    "`commitlog_follower_lag_messages`.",
    ["slave"],
    asks=_SLAVES,
)
SCRUBBED = counter(
    "commitlog_scrubbed_bytes", "Bytes that the scrubber has read and verified.", asks=_SCRUB
)
SCRUB_POSITION = gauge(
    "commitlog_scrub_position_bytes",
    "Log offset that the scrubber's current pass has reached.",
    asks=_SCRUB,
)
SCRUB_PASSES = gauge("commitlog_scrub_passes", "Completed passes of the scrubber.", asks=_SCRUB)
SCRUB_ENDED = gauge(
    "commitlog_scrub_ended_timestamp_seconds",
    "Unix time at which the scrubber's last pass ended; 0: none has.",
    asks=_SCRUB,
)
DAMAGED_STRETCHES = gauge(
    "commitlog_damaged_stretches",
    "Damaged ranges of the log: their bytes differ from what was written.",
    asks=_SCRUB,
)
DAMAGED_BYTES = gauge("commitlog_damaged_bytes", "Total size of the damaged ranges.", asks=_SCRUB)
CLOCK_AHEAD = gauge(
    "commitlog_clock_ahead_seconds",
    "How far the wall clock is ahead of the log's own time while it is not trusted.",
    asks="Is the machine's clock right?",
)
DISK_WAIT = gauge(
    "commitlog_disk_wait_seconds",
    "Time for which a worker's current task has been waiting for the disk.",
    ["lane"],
    asks=_FLUSH,
)
RECOVERED = gauge(
    "commitlog_recovery_progress_bytes", "Bytes that recovery has processed.", asks=_RECOVERY
)
RECOVERY_TOTAL = gauge(
    "commitlog_recovery_total_bytes", "Bytes that recovery has to process.", asks=_RECOVERY
)
RECOVERY_SECONDS = gauge(
    "commitlog_recovery_seconds",
    "Duration of the last opening of the log, including recovery; 0: not open yet.",
    asks=_RECOVERY,
)


def flush_took(elapsed_ns: int) -> None:
    FLUSH_SECONDS.observe(elapsed_ns / 1e9)


def append_took(part: str, elapsed_ns: int) -> None:
    APPEND_SECONDS.observe(part, elapsed_ns / 1e9)


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: CommitLog, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._totals = Totals()
        self._refused: dict[str, int] = dict(engine.gate.refused)
        self._marks = LagMarks()
        self._slaves: set[str] = set()

    def observe(self) -> None:
        engine = self._engine
        counters = engine.appender.counters
        self._totals.set(MESSAGES, counters.messages)
        self._totals.set(BYTES, counters.bytes)
        self._totals.set(PASSES, counters.passes)
        self._totals.set(ROLLED, counters.segments_rolled)
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
        for part, used in engine.gate.volumes.items():
            VOLUME_USED.labels(part).set(used)
        DISK_FULL.set(engine.gate.disk_full)
        full_in_s = engine.gate.disk_full_in_s
        DISK_FULL_IN.set(math.nan if full_in_s is None else full_in_s)
        CLOCK_AHEAD.set(engine.store_clock.ahead_ms / 1000)
        self._observe_scrubber()
        self._observe_lags()

    def _observe_scrubber(self) -> None:
        scrubber = self._engine.scrubber
        self._totals.set(SCRUBBED, scrubber.read_bytes)
        SCRUB_POSITION.set(scrubber.state.position_offset)
        SCRUB_PASSES.set(scrubber.state.passes)
        SCRUB_ENDED.set(scrubber.state.pass_ended_ms / 1000)
        DAMAGED_STRETCHES.set(len(scrubber.state.damage))
        DAMAGED_BYTES.set(sum(one.end - one.start for one in scrubber.state.damage))

    def _observe_lags(self) -> None:
        engine, offsets, marks = self._engine, self._engine.offsets, self._marks
        now_ns = self._clock.monotonic_ns()
        marks.grown(offsets.appended, engine.appender.counters.messages, now_ns)
        for name, state in engine.hub.followers.items():
            applied, confirmed = state.applied, offsets.confirmed
            FOLLOWER_LAG.labels(name).set(max(0, confirmed - applied))
            FOLLOWER_LAG_MESSAGES.labels(name).set(marks.lag_messages(applied, confirmed))
            FOLLOWER_LAG_SECONDS.labels(name).set(marks.lag_ns(applied, confirmed, now_ns) / 1e9)
            FOLLOWER_CONNECTED.labels(name).set(state.connections)
        known = () if engine.role is Role.SLAVE else engine.replicas.known
        slaves = {one.address: one.acknowledged_offset for one in known if one.connected}
        for address, acknowledged in slaves.items():
            messages = marks.lag_messages(acknowledged, offsets.appended)
            SLAVE_LAG_MESSAGES.labels(address).set(messages)
        for address in self._slaves - slaves.keys():
            SLAVE_LAG_MESSAGES.remove(address)
        self._slaves = set(slaves)
