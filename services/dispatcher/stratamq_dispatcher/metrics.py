"""What Prometheus sees of the dispatcher. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import counter, gauge
from stratamq_dispatcher.engine import DispatchEngine

PULLS = counter("dispatcher_pulls", "Pulls answered, by GetMessageStatus.", ["status"])
PULLED_MESSAGES = counter("dispatcher_pulled_messages", "Messages given to consumers.")
PULLED_BYTES = counter("dispatcher_pulled_bytes", "Bytes of frames given to consumers.")
WRITTEN_BYTES = counter("dispatcher_written_bytes", "Bytes of units written to queue files.")
OFFSET = gauge(
    "dispatcher_offset_bytes", "Log offsets: applied, durable, minimum, confirmed.", ["kind"]
)
LAG = gauge("dispatcher_lag_bytes", "Confirmed bytes of the log that are not dispatched yet.")
QUEUES = gauge("dispatcher_queues", "Consume queues that are known.")
UNWRITTEN = gauge("dispatcher_unwritten_bytes", "Units that are only in memory, in bytes.")
WAITING = gauge("dispatcher_waiting_pulls", "Pulls that may wait, and open pull streams.")
SERVING = gauge("dispatcher_serving", "1 while pulls are answered.")
STOPPED = gauge("dispatcher_stopped", "1 after dispatch has stopped; only a restart clears it.")
FLUSH_BLOCKED = gauge("dispatcher_flush_blocked", "1 while queue files cannot be written.")


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: DispatchEngine) -> None:
        self._engine = engine
        self._written = 0

    def observe(self) -> None:
        engine = self._engine
        followed = engine.followed
        OFFSET.labels("durable").set(engine.durable)
        for kind in ("applied", "minimum", "confirmed"):
            OFFSET.labels(kind).set(getattr(followed, kind))
        LAG.set(max(0, followed.confirmed - followed.applied))
        QUEUES.set(len(engine.queues))
        UNWRITTEN.set(engine.queues.unwritten_bytes)
        WAITING.set(len(engine.waiting))
        SERVING.set(engine.serving)
        STOPPED.set(bool(engine.stopped_reason))
        FLUSH_BLOCKED.set(bool(engine.saver.blocked))
        WRITTEN_BYTES.inc(engine.saver.written_bytes - self._written)
        self._written = engine.saver.written_bytes
