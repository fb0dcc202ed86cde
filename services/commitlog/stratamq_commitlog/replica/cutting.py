"""A slave's log is cut back to where its history is its master's, and takes over that history.

Cut ──► nothing is behind the offset ──► the generations, durable ──► followers open again
    └─► stratamq/cut.json records what is to be done ──► the log closes and is opened again, and
        opening does it (`cut_file`); then the generations; then cut.json goes
"""

from dataclasses import dataclass

from stratamq.errors import (
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.files.port import Files
from stratamq.formats.generation_number import Generation
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.recovery import cut_file
from stratamq_commitlog.recovery.cut_file import CutOrder
from stratamq_commitlog.recovery.own_state import KEPT_GENERATIONS, OwnState
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed, after_opening
from stratamq_commitlog.replica.membership import Membership
from stratamq_commitlog.replica.role_change import term_step_fault
from stratamq_commitlog.steps import Blocking, Flush, Procedure
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.write_gate import WriteGate


def merged(own: list[Generation], cut: CutOrder) -> list[Generation]:
    """A slave's list after a cut: its own up to there, then its master's from there on.

    A generation behind the cut becomes empty and stays listed, so that followers that have it
    receive where it ended. The master's generation that covers the cut may be listed twice.
    """
    if not cut.generations:
        return [Generation(g.number, min(g.start, cut.offset)) for g in own]
    first = max((at for at, g in enumerate(cut.generations) if g.start <= cut.offset), default=0)
    rest = cut.generations[first:]
    coming = {g.number for g in rest}
    kept = [g for g in own if g.start < cut.offset or g.number not in coming]
    kept = [Generation(g.number, min(g.start, cut.offset)) for g in kept]
    if kept and kept[-1].number == rest[0].number:
        rest = rest[1:]
    kept += [Generation(g.number, max(g.start, cut.offset)) for g in rest]
    return kept[-KEPT_GENERATIONS:]


@dataclass(slots=True)
class Cutting:
    """Cuts one open log; the fields are the parts that a cut changes."""

    files: Files
    states: StateCell
    own_state: OwnState
    membership: Membership
    offsets: LogOffsets
    segments: SegmentSet
    gate: WriteGate
    appender: Appender
    commit: GroupCommit
    hub: FollowHub
    master_confirmed: MasterConfirmed
    high_water_mark: HighWaterMark
    sync_flush: bool

    def cut(self, cut: CutOrder) -> Procedure[bool]:
        """Ends once the log that is left is as safe as its flush setting requires; True: the cut is
        written down, and the caller closes the log and opens it again."""
        refusal = self._refusal(cut)
        if refusal is not None:
            raise refusal
        generations = tuple(merged(list(self.states.now.generations), cut))
        confirmed = self._confirmed_after(cut)
        if not self._cuts_nothing(cut):
            empty = cut.empty or cut.offset == self.offsets.minimum
            yield from self._write_down(CutOrder(cut.offset, empty, generations), confirmed)
            return True
        yield from self._take_over(generations, confirmed)
        if self.sync_flush:
            yield Flush(self.offsets.appended)
        elif self.commit.failure is not None:
            raise UnavailableError(self.gate.stopped_reason)
        return False

    def _confirmed_after(self, cut: CutOrder) -> int | None:
        """How far the master's *confirmed* is known to go; None: not at all."""
        if cut.master_confirmed is None:
            return None
        return after_opening(
            self.master_confirmed.value,
            self.offsets.confirmed,
            cut.master_confirmed,
            self.states.now.generations,
            cut.generations,
        )

    def _store_confirmed(self, confirmed: int | None) -> None:
        if confirmed is None:
            self.master_confirmed.remove()
        else:
            self.master_confirmed.store(confirmed)

    def _take_over(
        self, generations: tuple[Generation, ...], confirmed: int | None
    ) -> Procedure[None]:
        """The log stays as it is, and what it has is the master's, too.

        What waits to be appended came from the master before. Example: A sent frames for 3271 to
        4409, its connection ended, and B's history is A's up to 3300. Appended after this, A's
        frames would lie in B's generation.
        """
        differ = generations != self.states.now.generations
        if differ:
            error = UnavailableError("the log takes over another history")
            self.appender.refuse_all(SendStatus.SERVICE_NOT_AVAILABLE, error)

        def persist() -> None:
            self._store_confirmed(confirmed)
            if differ:
                self.own_state.store_generations(list(generations), self.segments.segment_bytes)

        self.master_confirmed.replace()
        try:
            yield from self.states.change(persist, generations=generations, tail_unconfirmed=False)
        except OSError as error:
            self.master_confirmed.retain()
            sentence = f"the history could not be written: {error.strerror or error}"
            raise NotWritableError(sentence, "generations") from error
        self.master_confirmed.begin(confirmed)
        if differ:
            self.hub.end_all()
        self.high_water_mark.advance()

    def _write_down(self, cut: CutOrder, confirmed: int | None) -> Procedure[None]:
        self.gate.closing = True
        self.appender.refuse_all(
            SendStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the log is being cut")
        )
        self.hub.end_all()

        def persist() -> None:
            self._store_confirmed(confirmed)
            cut_file.store(self.files, cut)

        self.master_confirmed.replace()  # until the log is opened again: the close keeps the file
        try:
            yield Blocking(persist)
        except OSError as error:
            self.gate.closing = self.hub.closing = False
            self.master_confirmed.retain()
            sentence = f"the cut could not be written down: {error.strerror or error}"
            raise NotWritableError(sentence, "cut") from error

    def _refusal(self, cut: CutOrder) -> StrataError | None:
        offsets, now = self.offsets, self.states.now
        if now.role is not Role.SLAVE:
            return NotWritableError("only a slave's log is cut", "role")
        if shut := self.gate.shut():
            return UnavailableError(shut)
        if not cut.empty and not offsets.minimum <= cut.offset <= offsets.appended:
            return InvalidRequestError(
                f"the log holds [{offsets.minimum}, {offsets.appended}), and cannot be cut at "
                f"{cut.offset}"
            )
        if cut.generations:
            term, known = max(g.term for g in cut.generations), now.assigned.term
            if term < known:
                return NotWritableError(
                    f"term {known} is known, and a master of term {term} is not followed", "term"
                )
            if step := term_step_fault(now, self.membership, offsets, term):
                return NotWritableError(step, "term")
        starts = [g.start for g in cut.generations]
        if cut.offset < 0 or starts != sorted(starts):
            return InvalidRequestError("the generations are not in the order of their starts")
        return None

    def _cuts_nothing(self, cut: CutOrder) -> bool:
        offsets = self.offsets
        if cut.empty and not self.segments.offsets and offsets.appended == 0:
            return True
        return cut.offset == offsets.appended and not (cut.empty and offsets.minimum < cut.offset)
