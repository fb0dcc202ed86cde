"""What Prometheus sees of the dispatcher. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import counter, gauge
from stratamq_dispatcher.engine import DispatchEngine

_OUT = "How much goes out to consumers?"
_DISK = "Do the queue files get what is dispatched?"
_BEHIND = "How far behind the log are consume queues?"
_SIZE = "How many queues and groups are there?"
_SERVES = "Are consumers served?"
_GROUPS = "Which groups are behind, and by how much?"

PULLS = counter("dispatcher_pulls", "Pulls answered, by GetMessageStatus.", ["status"], asks=_OUT)
PULLED_MESSAGES = counter("dispatcher_pulled_messages", "Messages given to consumers.", asks=_OUT)
PULLED_BYTES = counter("dispatcher_pulled_bytes", "Bytes of frames given to consumers.", asks=_OUT)
WRITTEN_BYTES = counter(
    "dispatcher_written_bytes", "Bytes of units written to queue files.", asks=_DISK
)
OFFSET = gauge(
    "dispatcher_offset_bytes",
    "Log offsets: applied, durable, minimum, confirmed.",
    ["kind"],
    asks=_BEHIND,
)
LAG = gauge(
    "dispatcher_lag_bytes", "Confirmed bytes of the log that are not dispatched yet.", asks=_BEHIND
)
QUEUES = gauge("dispatcher_queues", "Consume queues that are known.", asks=_SIZE)
UNWRITTEN = gauge(
    "dispatcher_unwritten_bytes", "Units that are only in memory, in bytes.", asks=_DISK
)
WAITING = gauge(
    "dispatcher_waiting_pulls", "Pulls that may wait, and open pull streams.", asks=_OUT
)
SERVING = gauge("dispatcher_serving", "1 while pulls are answered.", asks=_SERVES)
STOPPED = gauge(
    "dispatcher_stopped", "1 after dispatch has stopped; only a restart clears it.", asks=_SERVES
)
FLUSH_BLOCKED = gauge(
    "dispatcher_flush_blocked", "1 while queue files cannot be written.", asks=_DISK
)
GROUPS = gauge(
    "dispatcher_groups", "Groups that have committed an offset, as of the last walk.", asks=_SIZE
)
GROUP_LAG = gauge(
    "dispatcher_group_lag_messages",
    "Messages that a group has yet to read in all topics, for the 20 groups with the most, as of "
    "the last walk through all groups.",
    ["group"],
    asks=_GROUPS,
)
GROUP_LAG_SECONDS = gauge(
    "dispatcher_group_lag_seconds",
    "Age of the oldest message that a group has yet to read in all topics, for groups that were "
    "among the 20 with the most messages in the last two walks, in the 32 queues where each has "
    "most. NaN: the message is damaged or not in the log (deleted, or in the tier only).",
    ["group"],
    asks=_GROUPS,
)
OTHERS_LAG = gauge(
    "dispatcher_other_groups_lag_messages",
    "Messages that all other groups have yet to read.",
    asks=_GROUPS,
)
GROUPS_BEHIND = gauge(
    "dispatcher_groups_behind", "Groups that have messages to read.", asks=_GROUPS
)
GROUPS_WALK = gauge(
    "dispatcher_groups_walk_seconds",
    "Duration of the last walk through all groups: lags are at most about this old, plus 10 s; 0: "
    "none has ended.",
    asks=_GROUPS,
)


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: DispatchEngine) -> None:
        self._engine = engine
        self._written = 0

    def observe(self) -> None:
        engine = self._engine
        followed = engine.followed
        OFFSET.labels("durable").set(engine.followed.durable)
        for kind in ("applied", "minimum", "confirmed"):
            OFFSET.labels(kind).set(getattr(followed, kind))
        LAG.set(max(0, followed.confirmed - followed.applied))
        QUEUES.set(len(engine.queues))
        UNWRITTEN.set(engine.queues.unwritten_bytes)
        WAITING.set(len(engine.waiting))
        SERVING.set(engine.followed.serving)
        STOPPED.set(bool(engine.followed.stopped_reason))
        FLUSH_BLOCKED.set(bool(engine.saver.blocked))
        WRITTEN_BYTES.inc(engine.saver.written_bytes - self._written)
        self._written = engine.saver.written_bytes
