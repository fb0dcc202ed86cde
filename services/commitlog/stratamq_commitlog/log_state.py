"""What the broker's log is: one immutable value, replaced as a whole; and where it is.

    copy      a procedure computes what is to follow
    persist   what is durable of it goes to disk: `assigned` to role.json, `generations` to
              generations.json
    swap      every part sees all of the change, or nothing of it

`StateCell.change` is these steps in this order, and the only way to change what is durable.

Counters that move with every append (`LogOffsets`, the backlog) are no part of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import Role
from stratamq_commitlog.roles import RoleState
from stratamq_commitlog.steps import Blocking, Procedure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoleAndHistory:
    """The four reasons are "" while they do not hold; what each refuses is in `WriteGate`."""

    assigned: RoleState
    """Role, term and candidate as they are in role.json, or will be after the next start."""
    generations: tuple[Generation, ...] = ()
    """In the order of their starts; the last one is the current one."""
    recovering_tail: str = ""
    """A SYNC_MASTER copies its own log's end from its slaves: until then it acts as a slave."""
    held: str = ""
    """A master takes no messages for the time being."""
    uncertain: str = ""
    """The role cannot be read: an operator must assign one."""
    changing: str = ""
    """A change of role is under way."""
    tail_unconfirmed: bool = False
    """What is above *confirmed* may be on this broker only: it is neither shown nor confirmed."""

    @property
    def role(self) -> Role:
        """The role that the log acts in."""
        return Role.SLAVE if self.recovering_tail else self.assigned.role

    @property
    def is_slave(self) -> bool:
        return self.role is Role.SLAVE

    @property
    def held_reason(self) -> str:
        """Why a master takes no messages for the time being."""
        return self.uncertain or self.held or self.recovering_tail

    @property
    def generation(self) -> int:
        return self.generations[-1].number

    @property
    def last_term(self) -> int:
        """The highest term of the log's own generations."""
        return max((one.term for one in self.generations), default=0)

    @property
    def highest_term(self) -> int:
        """The highest term of a generation, of a promise, or that another broker has named."""
        return max(self.assigned.term, self.last_term)


DURABLE = frozenset(("assigned", "generations"))
"""Fields of which a start must find what any part has seen."""


class StateCell:
    """Holds the current state. Read and changed on the engine's thread only."""

    def __init__(self, state: RoleAndHistory) -> None:
        self._now = state
        self.histories_pending = 0
        """Changes of the generations that are being written."""

    @property
    def now(self) -> RoleAndHistory:
        return self._now

    def begin(self, found: RoleAndHistory) -> None:
        """A start has read or written all of it."""
        self._now = found

    def change(self, persist: Callable[[], T], **changes: Any) -> Procedure[T]:
        """Write with `persist`, on the worker, then show these fields; its result. An error of it
        is raised here, and nothing has changed for any part.

        The order matters: if a master showed its new generation first and then lost power, its
        slaves would follow a generation that its next start does not know, and cut their logs.
        """
        other_history = changes.get("generations", self._now.generations) != self._now.generations
        self.histories_pending += other_history
        try:
            result: T = yield Blocking(persist)
        finally:
            self.histories_pending -= other_history
        self._now = replace(self._now, **changes)
        return result

    def swap(self, **changes: Any) -> None:
        """Show these fields, of which nothing is durable."""
        assert not DURABLE & changes.keys(), "a durable field is changed by `change` alone"
        self._now = replace(self._now, **changes)


@dataclass(slots=True)
class LogOffsets:
    """How far the log is. What moves one of them says so: `HighWaterMark.advance`, or a cut."""

    minimum: int
    appended: int
    flushed: int
    confirmed: int
    replicable: int
    sealed_from: int = NOWHERE
    """From here on every record has a checksum of its own: `sealing`."""
