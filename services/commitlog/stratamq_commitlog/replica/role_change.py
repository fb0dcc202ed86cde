"""A broker that runs becomes a master, or a slave.

    master   nothing more is taken ──► everything is durable ──► the window of producers is read
             ──► role.json ──► the generations ──► followers and slaves open again
             ──► messages are taken
    slave    nothing more is taken ──► role.json ──► a master's bytes are taken

A slave promises a term to one member: role.json names it, and no other is promised that term. A
master's term belongs to its own member (`generation_number.next_term`).

`stratamq/role.json` is the point of no return: a crash before it leaves the old role, one behind it
ends, at the next start, in the new one, whose generation begins then. A generation of a higher term
is therefore durable before its first byte. If the file or the list cannot be written, it is unknown
which role a start will find: the log stops until then.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.files.port import Random
from stratamq.formats.generation_number import GREATEST_TERM, LARGEST_TERM_STEP, Generation, slot_of
from stratamq.formats.log_state import Role
from stratamq.formats.message_status import SendStatus
from stratamq_commitlog.log_state import LogOffsets, RoleAndHistory, StateCell
from stratamq_commitlog.recovery.own_state import OwnState, extend, next_generation
from stratamq_commitlog.recovery.reserve import Reserve
from stratamq_commitlog.replica.acknowledgement import Replicas, ReplicaWaiters
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.replica.membership import Membership
from stratamq_commitlog.roles import (
    RECOVERING_TAIL,
    REMOVED,
    ChosenBy,
    RoleFile,
    RoleState,
    StartRole,
)
from stratamq_commitlog.steps import Blocking, Flush, Procedure
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.producer_window import ProducerWindow, WindowContents
from stratamq_commitlog.write.topic_table import TopicTable
from stratamq_commitlog.write.write_gate import WriteGate

log = logging.getLogger(__name__)

_STORING_PEERS = "whether the broker has peers is being written: try again"


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What is asked for. `term` of a master: 0 takes the next; of a slave: the term received, 0 for
    an operator's command. `master`: where the new master's slaves connect."""

    role: Role
    term: int = 0
    master: str = ""
    reason: str = ""
    resumes: bool = False
    """It has recovered its tail from its slaves, and resumes in its term."""
    candidate: str = ""
    """On a slave: the member to which the term is promised."""


def start_role(
    role_file: RoleFile,
    membership: Membership,
    random: Random,
    *,
    wait_for_peers: bool,
    tail_at_risk: bool,
) -> tuple[StartRole, list[str]]:
    """Blocking: the role with which an opening log begins, and sentences for its report.
    `tail_at_risk`: flushed bytes may have been lost. OSError."""
    membership.load(random)
    restored = membership.identity.restored
    started = role_file.start(
        wait_for_peers=wait_for_peers,
        tail_at_risk=tail_at_risk,
        is_member=membership.members is not None,
        restored=restored,
    )
    if restored:
        membership.forget_restored()
    report = []
    if damage := started.uncertain or membership.damage:
        # A promise, or a later list of the members, may have been in what cannot be read.
        membership.forget_joined()
        report.append(f"rejoining: this directory is not counted in the quorum: {damage}")
    if difference := started.state.difference(role_file.configured):
        report.append(difference)
    return started, report


def state_at_start(
    started: StartRole, assigned: RoleState, generations: list[Generation], membership: Membership
) -> RoleAndHistory:
    """`assigned`, `generations`: as they are on the disk now."""
    return RoleAndHistory(
        assigned=assigned,
        generations=tuple(generations),
        recovering_tail=RECOVERING_TAIL if started.recovers_tail else "",
        held=started.held or removal(membership, assigned),
        uncertain=started.uncertain,
    )


def removal(membership: Membership, assigned: RoleState) -> str:
    """Why a master takes no messages that was removed from its cluster; "" if it was not."""
    return REMOVED if membership.removed and assigned.role is not Role.SLAVE else ""


@dataclass(slots=True)
class RoleChanges:
    """Changes the role of one open log; the fields are the parts that such a change touches."""

    states: StateCell
    role_file: RoleFile
    own_state: OwnState
    membership: Membership
    offsets: LogOffsets
    gate: WriteGate
    appender: Appender
    hub: FollowHub
    replicas: Replicas
    waiters: ReplicaWaiters
    master_confirmed: MasterConfirmed
    high_water_mark: HighWaterMark
    random: Random
    segment_bytes: int
    property_checksum: bool
    topics: TopicTable
    window: ProducerWindow
    scan_producers: Callable[[], WindowContents]
    reserve: Reserve
    storing_peers: bool = False
    """`hold` writes role.json: a change that began now would write what was there before."""

    def change(self, change: RoleChange) -> Procedure[None]:
        """Ends once the role is durable and, of a master, its generation with it."""
        refusal = self._refusal(change)
        if refusal is not None:
            raise refusal
        assigned = self.states.now.assigned
        promised = assigned.term, assigned.candidate
        if change.candidate and (change.term, change.candidate) == promised:
            return
        if change.role is Role.SLAVE:
            yield from self._become_slave(change)
        else:
            yield from self._become_master(change)

    def _become_master(self, change: RoleChange) -> Procedure[None]:
        with self._changing("the broker is being promoted"):
            yield from self._weigh_again(change)
            yield Flush(self.offsets.appended)
            producers: WindowContents = yield Blocking(self.scan_producers)
            now = self.states.now
            term = change.term or now.highest_term + (not change.resumes)
            assigned = now.assigned
            if not change.resumes:
                assigned = replace(
                    assigned,
                    role=change.role,
                    chosen_by=ChosenBy.OPERATOR,
                    term=term,
                    candidate=self.membership.member,
                    master="",
                    reason=change.reason or f"it was promoted to term {term}",
                )
            generations = self._with_next_generation(now.generations, term)
            yield from self._change_state(assigned, generations)
            if not change.resumes:
                log.warning("promoted", extra={"role": assigned.role.name, "term": term})
            # Before messages are taken: the first append of the new term may be a repetition.
            self.window.load(producers)
            self._state_changed(tail_unconfirmed=False)

    def _with_next_generation(
        self, known: tuple[Generation, ...], term: int
    ) -> tuple[Generation, ...]:
        last = known[-1] if known else None
        following = next_generation(last, self.offsets.appended, self.random, term)
        return tuple(extend(list(known), following))

    def _become_slave(self, change: RoleChange) -> Procedure[None]:
        with self._changing("the broker becomes a slave"):
            yield from self._weigh_again(change)
            assigned = self._as_slave(change)
            before = self.states.now
            yield from self._change_state(assigned, before.generations)
            log.warning(
                "a slave from now on", extra={"reason": assigned.reason, "master": assigned.master}
            )
            unconfirmed = self.states.now.tail_unconfirmed or not before.is_slave
            self._state_changed(tail_unconfirmed=unconfirmed)
            self.window.clear()
            self.waiters.abandon()

    def _as_slave(self, change: RoleChange) -> RoleState:
        now = self.states.now
        old, heard = now.assigned, change.term > 0
        assigned = RoleState(
            role=Role.SLAVE,
            chosen_by=ChosenBy.HIGHER_TERM if heard else ChosenBy.OPERATOR,
            term=max(change.term, now.highest_term),
            master=change.master,
            reason=change.reason or ("another was promoted" if heard else "it was demoted"),
            peers=old.peers,
            candidate=change.candidate,
        )
        if not assigned.candidate and assigned.term == old.term:
            assigned = replace(assigned, candidate=old.candidate)
        return assigned

    def _weigh_again(self, change: RoleChange) -> Procedure[None]:
        """Once the history or the members that are being written are in force: no others come
        before the change has ended."""
        yield Blocking(lambda: None)
        refusal = self._fault(change)
        if refusal is not None:
            raise refusal

    @contextmanager
    def _changing(self, reason: str) -> Iterator[None]:
        """Nothing is taken meanwhile, and what waited is refused."""
        self.states.swap(changing=reason)
        self.appender.refuse_all(SendStatus.SERVICE_NOT_AVAILABLE, UnavailableError(reason))
        try:
            yield
        finally:
            self.states.swap(changing="")

    def _change_state(
        self, assigned: RoleState, generations: tuple[Generation, ...]
    ) -> Procedure[None]:
        """Durable when it ends. NotWritableError, and the log has stopped, when it cannot be."""
        is_slave = assigned.role is Role.SLAVE
        begins = generations != self.states.now.generations
        confirmed = None if self.states.now.is_slave else self.offsets.confirmed

        def store() -> int:
            if is_slave and confirmed is not None:
                # Until a master reports its own: a start shows no more of the log than was shown.
                self.master_confirmed.store(confirmed)
            # Readers find the records' format before the first record is written.
            sealed_from = self.own_state.begin_sealing(
                self.offsets.appended,
                seals=self.property_checksum and not is_slave,
                history_known=True,
            )
            self.role_file.store(assigned)
            if not is_slave:
                self.master_confirmed.remove()
            if begins:
                # The role before the generation: a broker that dies between the two starts as the
                # master of its term, and each start of a master begins a generation. The other
                # way round, a slave would start with a generation that its master does not know.
                self.own_state.store_generations(list(generations), self.segment_bytes)
            return sealed_from

        self.master_confirmed.replace()
        try:
            self.offsets.sealed_from = yield from self.states.change(
                lambda: self.reserve.attempt(store), assigned=assigned, generations=generations
            )
        except OSError as error:
            raise self._stop(error) from error
        if is_slave and confirmed is not None:
            self.master_confirmed.begin(confirmed)
        elif is_slave:
            self.master_confirmed.retain()

    def _state_changed(self, *, tail_unconfirmed: bool) -> None:
        """What follows from it, before anything else runs on the engine's thread."""
        assigned = self.states.now.assigned
        removed = removal(self.membership, assigned)  # perhaps since this change began
        self.states.swap(
            recovering_tail="",
            held=removed,
            uncertain="",
            tail_unconfirmed=tail_unconfirmed or bool(removed),
        )
        self.gate.master_address = ""
        self.gate.lease.end()
        self.replicas.report([])
        if assigned.role is not Role.SLAVE:
            self.master_confirmed.forget()
            self.topics.discover(self.appender.queues.undiscovered())
            self.topics.limit_minimums(self.appender.queues.table)
        self.hub.end_all()
        self.high_water_mark.advance()

    def _stop(self, error: OSError) -> StrataError:
        sentence = (
            f"a change of role could not be written ({error.strerror or error}): nothing more is "
            "written, restart the service to learn which role the broker has"
        )
        self.gate.stopped_reason = sentence
        log.critical("a change of role failed", extra={"error": str(error)})
        return NotWritableError(sentence, "role")

    # --- what is refused ---

    def _refusal(self, change: RoleChange) -> StrataError | None:
        gate, now = self.gate, self.states.now
        if gate.closing or now.changing or gate.stopped_reason:
            return UnavailableError(gate.stopped_reason or now.changing or "the log is closing")
        if self.storing_peers:
            return UnavailableError(_STORING_PEERS)
        return self._fault(change)

    def _fault(self, change: RoleChange) -> StrataError | None:
        """Why the state, as it is, rules it out."""
        now = self.states.now
        if not 0 <= change.term <= GREATEST_TERM:
            return InvalidRequestError(f"a term is at most {GREATEST_TERM}, and not {change.term}")
        if change.resumes:
            return (
                None
                if now.recovering_tail
                else NotWritableError("tail recovery is not in progress", "role")
            )
        if change.role is Role.SLAVE:
            return self._refusal_of_slave(change)
        return self._refusal_of_master(change)

    def _refusal_of_slave(self, change: RoleChange) -> StrataError | None:
        now = self.states.now
        assigned, known = now.assigned, now.highest_term
        step = term_step_fault(now, self.membership, self.offsets, change.term)
        if step:
            return NotWritableError(step, "term")
        promised = assigned.term, assigned.candidate
        if not change.candidate or (change.term, change.candidate) == promised:
            return None
        fault = self.membership.candidate_fault(change.candidate, change.term)
        if fault:
            return InvalidRequestError(fault)
        only_heard = not assigned.candidate and change.term == known > now.last_term
        if change.term <= known and not only_heard:
            return NotWritableError(
                f"term {known} was promised to {assigned.candidate or 'no member'} or received: "
                f"term {change.term} is too late",
                "term",
            )
        return None

    def _refusal_of_master(self, change: RoleChange) -> StrataError | None:
        now, membership = self.states.now, self.membership
        known, assigned = now.highest_term, now.assigned
        if membership.members is not None:
            if membership.removed:
                return NotWritableError(REMOVED, "members")
            promised = (change.term, membership.member) == (assigned.term, assigned.candidate)
            empty = self.offsets.appended == self.offsets.minimum
            if not (promised or (empty and not known)) or change.term <= now.last_term:
                return NotWritableError(
                    f"term {change.term} is not promised to this member: {assigned.term} is, to "
                    f"{assigned.candidate or 'no member'}",
                    "term",
                )
            if slot_of(change.term) != membership.slot:
                return InvalidRequestError(f"term {change.term} does not belong to this member")
            return None
        if change.term and change.term <= known:
            return NotWritableError(
                f"term {known} was there already, {change.term} is too late", "term"
            )
        if not change.term and known >= GREATEST_TERM:
            return NotWritableError(f"there is no term after {known}", "term")
        return None

    # --- taking no messages for the time being ---

    def hold(self, reason: str, has_peers: bool) -> Procedure[None]:
        """Take no messages because of `reason`, "": take them again. Whether the broker has peers
        is durable before they are."""
        now = self.states.now
        if now.changing or self.storing_peers:
            raise UnavailableError(now.changing or _STORING_PEERS)
        if now.is_slave and not now.recovering_tail:
            raise NotWritableError("a slave takes no messages anyway", "role")
        if reason:
            self.states.swap(held=reason)
        if now.assigned.peers is not has_peers:
            assigned = replace(now.assigned, peers=has_peers)
            self.storing_peers = True
            try:
                yield from self.states.change(
                    lambda: self.role_file.store(assigned), assigned=assigned
                )
            except OSError as error:
                sentence = f"role.json could not be written: {error.strerror}"
                raise NotWritableError(sentence, "role") from error
            finally:
                self.storing_peers = False
        self._hold(reason)

    def _hold(self, reason: str) -> None:
        now = self.states.now
        reason = reason or removal(self.membership, now.assigned)
        confirms = not reason and not now.recovering_tail and now.tail_unconfirmed
        self.states.swap(held=reason, tail_unconfirmed=now.tail_unconfirmed and not confirms)
        if confirms:
            self.high_water_mark.advance()

    def members_changed(self) -> None:
        """Other members are in force: fewer acknowledgements may be enough. Not for a master that
        was removed: those are for the master that removed it, and confirm nothing here."""
        now = self.states.now
        if removed := removal(self.membership, now.assigned):
            self.states.swap(held=now.held or removed, tail_unconfirmed=True)
            self.waiters.abandon()
        self.replicas.required = self.membership.required
        self.high_water_mark.advance()
        self.waiters.replicas_changed()


def term_step_fault(
    state: RoleAndHistory, membership: Membership, offsets: LogOffsets, term: int
) -> str:
    """Why a log with a history takes no such term from another broker; "" if it may."""
    known = state.highest_term
    is_new = membership.rejoining or offsets.appended == offsets.minimum
    if is_new or term <= known + LARGEST_TERM_STEP:
        return ""
    return (
        f"term {term} is more than {LARGEST_TERM_STEP} above term {known}, the highest known here: "
        "it is ignored. If it is right, mark this broker, stopped, as new (`stratamq replica "
        "restored`)"
    )
