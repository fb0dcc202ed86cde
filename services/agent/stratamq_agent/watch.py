"""What an agent has seen of the election's value: how long it has been unchanged, and how long the
store has been followed without a step back.

A store that was put back to an older copy, or emptied, may name any member, while another still has
a lease. An agent that has followed the value for a whole ttl without a step back knows that every
remaining lease was granted in what it follows.

    first read, a step back, no read for nearly a ttl ──► watched from now on
    the value changes                                 ──► unchanged from now on
"""

from stratamq.election.store import StoredState
from stratamq.files.port import Clock
from stratamq.formats.election_state import ElectionState

GAP = 0.95
"""A share of the ttl. The rest allows for clocks that run at different rates."""


class LeaseWatch:
    """What one agent has seen. A copy that is put back is older than a ttl: renewals in it are
    behind what was read a ttl ago."""

    def __init__(self, clock: Clock, ttl_ns: int) -> None:
        self.steps_back = 0
        """Since the start."""
        self.led_before = ""
        """Who led when the value went back to what it is now; "": it has changed since, or did not
        go back."""
        self._clock = clock
        self._gap_ns = int(ttl_ns * GAP)
        self._ttl_ns = ttl_ns
        self._step = ""
        self._now: StoredState | None = None
        self._since_ns = self._from_ns = self._read_ns = clock.monotonic_ns()
        self._begun = self._noted = 0

    @property
    def unchanged_ns(self) -> int:
        """For so long the value is as it is, as far as this agent knows."""
        return self._clock.monotonic_ns() - self._since_ns

    @property
    def watched_ns(self) -> int:
        """For so long the value was followed without a step back."""
        return self._clock.monotonic_ns() - self._from_ns

    @property
    def step_back(self) -> str:
        """What went back less than a ttl ago; "": nothing."""
        return self._step if self.watched_ns < self._ttl_ns else ""

    def begin(self) -> tuple[int, int]:
        """Before a read: its ticket."""
        self._begun += 1
        return self._begun, self._clock.monotonic_ns()

    def end(self, ticket: tuple[int, int], found: StoredState) -> bool:
        """What the read brought; True: it is a step back. One that another has overtaken shows
        nothing."""
        number, began_ns = ticket
        if number < self._noted:
            return False
        before, self._noted = self._now, number
        now_ns = self._clock.monotonic_ns()
        gap = before is None or now_ns - self._read_ns >= self._gap_ns
        self._read_ns = began_ns
        step = _step_back(before, found) if before is not None else ""
        if found != before or gap:
            self._now, self._since_ns, self.led_before = found, now_ns, ""
        if step or gap:
            self._from_ns, self._step = now_ns, step
        if step:
            self.steps_back += 1
            self.led_before = _state(before).leader
        return bool(step)

    def written(self, state: ElectionState, revision: str) -> None:
        """This agent has changed the value."""
        self._begun += 1
        self._noted = self._begun
        self._now, self._since_ns = StoredState(state, revision), self._clock.monotonic_ns()
        self.led_before = ""


def _state(snapshot: StoredState | None) -> ElectionState:
    return (snapshot.state if snapshot is not None else None) or ElectionState()


def _step_back(before: StoredState, found: StoredState) -> str:
    """What went back; "": nothing."""
    then, now = _state(before), _state(found)
    if before.state is not None and found.state is None:
        return (
            f"the value is gone, renewal {then.renewal} of {then.leader or 'no leader'} was there"
        )
    if now.renewal < then.renewal:
        return f"renewal {now.renewal} was read after {then.renewal}"
    if now.renewal == then.renewal and now.leader != then.leader:
        return f"renewal {now.renewal} was of {then.leader}, and is of {now.leader or 'no leader'}"
    if now.term < then.term:
        return f"term {now.term} was read after {then.term}"
    numbers = before.revision, found.revision
    if all(map(str.isdecimal, numbers)) and int(numbers[1]) < int(numbers[0]):
        return f"revision {numbers[1]} was read after {numbers[0]}"
    return ""
