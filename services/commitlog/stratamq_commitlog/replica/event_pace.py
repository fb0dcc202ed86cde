"""How often a follower receives an event: pure, so that it can be tested without a clock.

An event costs a follower 0.2 to 0.5 ms whatever it holds, and the log a third of that for each
follower. A message that comes alone is announced at once; while more comes, every 5 ms; and once
events are large, so that no consumer waits for single messages, every 10 ms or as soon as a whole
event's worth is there. A follower that producers wait for receives one every 2 ms, and what is
confirmed with its bytes where these come soon; what no caller waits for goes every 50 ms.
"""

STEADY_SECONDS, SHORT_SECONDS, LONG_SECONDS = 0.002, 0.005, 0.010
UNHURRIED_SECONDS = 0.050
CONFIRMED_SECONDS = 0.020
"""To replication, from one confirmed offset to the next without bytes. With one message in flight
each goes with the bytes of the next message, instead of in an event and a call of its own here, at
the slave and at its log."""
LARGE_EVENT_BYTES = 128 << 10
"""In 5 ms: 26 MB a second."""
WHOLE_EVENT_BYTES = 1 << 20


class EventPace:
    """The pace of one stream's events. `steady`: large events are sent as often as small ones,
    because producers wait for what this follower does with them."""

    def __init__(self, *, steady: bool) -> None:
        self._steady = steady
        self._spoke_at = self._confirmed_at = 0.0
        self._pause = 0.0
        self._confirmed = -1

    def spoke(self, now: float, event_bytes: int, confirmed: int = -1) -> None:
        self._spoke_at = now
        if confirmed != self._confirmed:
            self._confirmed, self._confirmed_at = confirmed, now
        if not event_bytes:
            return  # only *flushed* or the minimum moved
        if self._steady:
            self._pause = STEADY_SECONDS
        else:
            self._pause = LONG_SECONDS if event_bytes >= LARGE_EVENT_BYTES else SHORT_SECONDS

    def hurry(self) -> None:
        """A caller has begun to wait: the next event follows without a pause."""
        self._pause = 0.0

    def early(self, now: float, waiting_bytes: int, unhurried: bool = False) -> float:
        """How many seconds too early it is to announce so much; 0: announce."""
        if waiting_bytes >= WHOLE_EVENT_BYTES:
            return 0.0
        pause = UNHURRIED_SECONDS if unhurried else self._pause
        since = self._spoke_at + pause
        if self._steady and not waiting_bytes:
            since = max(since, self._confirmed_at + CONFIRMED_SECONDS)
        return max(0.0, since - now)
