"""A broker that runs becomes a master, or a slave.

    master   nothing more is taken ──► everything is durable ──► role.json ──► the generations
             ──► followers and slaves open again ──► messages are taken
    slave    nothing more is taken ──► role.json ──► a master's bytes are taken

A slave promises a term to one member: role.json names it, and no other is promised that term. A
master's term belongs to its own member (`generation_number.next_term`).

`stratamq/role.json` is the point of no return: a crash before it leaves the old role, one behind it
ends, at the next start, in the new one, whose generation begins then. A generation of a higher term
is therefore durable before its first byte, whatever happens. If the file or the list cannot be
written nobody knows which role a start will find: the log stops until then.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.files.port import Worker
from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.generation_number import GREATEST_TERM, LARGEST_TERM_STEP, slot_of
from stratamq_commitlog import own_state
from stratamq_commitlog.messages import Generation, PutStatus, Role
from stratamq_commitlog.roles import REMOVED, TAKING_BACK, ChosenBy, RoleState, Start

if TYPE_CHECKING:
    from stratamq_commitlog.engine import CommitLog

log = logging.getLogger(__name__)

Done = Callable[[StrataError | None], None]


@dataclass(frozen=True, slots=True)
class RoleChange:
    """What is asked for. `term` of a master: 0 takes the next; of a slave: what was heard of, 0 if
    an operator wants it. `master`: where the new master's slaves connect."""

    role: Role
    term: int = 0
    master: str = ""
    reason: str = ""
    goes_on: bool = False
    """It took back what its slaves held, and goes on in its term."""
    candidate: str = ""
    """Of a slave: the member to which the term is promised."""


def begin(
    engine: "CommitLog", state: own_state.OwnState, worker: Worker, change: RoleChange, done: Done
) -> None:
    """`done(None)` once the role is durable and, of a master, its generation with it."""
    refusal = _refusal(engine, change)
    promised = engine.roles.state.term, engine.roles.state.candidate
    if refusal is not None:
        done(refusal)
    elif change.candidate and (change.term, change.candidate) == promised:
        done(None)
    elif change.role is Role.SLAVE:
        _become_slave(engine, state, worker, change, done)
    else:
        _become_master(engine, state, worker, change, done)


def start(engine: "CommitLog", *, unclean: bool) -> Start:
    """The role with which an opening log begins, and its cluster. `unclean`: its last stop was
    not."""
    engine.membership.load(engine.random)
    engine.replicas.required = engine.membership.required
    started = engine.roles.start(
        wait_for_peers=engine.config.wait_for_peers,
        tail_at_risk=unclean and not engine.sync_flush and engine.config.take_back,
        is_member=engine.membership.members is not None,
        restored=engine.membership.identity.restored,
    )
    if engine.membership.identity.restored:
        engine.membership.forget_restored()
    if damage := started.uncertain or engine.membership.damage:
        # A promise, or a later list of the members, may have been in what cannot be read.
        engine.membership.forget_joined()
        engine.report.append(f"this directory counts for nothing in its cluster: {damage}")
    engine.role = engine.gate.role = Role.SLAVE if started.takes_back else started.state.role
    engine.gate.taking_back = TAKING_BACK if started.takes_back else ""
    removed = engine.membership.removed and started.state.role is not Role.SLAVE
    engine.gate.held = started.held or (REMOVED if removed else "")
    engine.gate.uncertain = started.uncertain
    engine.tail_unconfirmed = False
    different = started.state.difference(engine.roles.configured)
    if different:
        engine.report.append(different)
    return started


def hold_back(engine: "CommitLog", checkpoint: Checkpoint) -> None:
    """What may be on this broker only its consumers do not see after a start: of a master under
    `hold_without_slave` until slaves have it, of one that waits until it is let go on, of a slave
    until its master has confirmed it. What they saw before is below the checkpoint's *confirmed*,
    or seconds above it."""
    gate = engine.gate
    if engine.roles.state.role is Role.SLAVE:
        shown = checkpoint.confirm_phy_offset
        engine.master_confirmed.load(checkpoint_confirmed=shown, end=engine.offsets.appended)
    else:
        engine.master_confirmed.drop()
    if engine.master_confirmed.value is not None:
        _show_up_to(engine, engine.master_confirmed.value)
        return
    waits = bool(gate.held or gate.taking_back or gate.uncertain)
    holds = engine.role is Role.SYNC_MASTER and engine.config.hold_without_slave
    if not (holds or (waits and engine.roles.state.role is not Role.SLAVE)):
        return
    if _show_up_to(engine, checkpoint.confirm_phy_offset):
        engine.tail_unconfirmed = waits


def _show_up_to(engine: "CommitLog", offset: int) -> bool:
    """Whether that leaves something of the log out."""
    offsets = engine.offsets
    confirmed = max(offsets.minimum, offset)
    if confirmed >= offsets.appended:
        return False
    offsets.confirmed = confirmed
    engine.hub.unconfirmed(offsets.appended)
    return True


def highest_term(engine: "CommitLog") -> int:
    """That the log has, or has heard of."""
    return max([engine.roles.state.term, *(g.term for g in engine.hub.generations)])


def members_changed(engine: "CommitLog") -> None:
    """Other members are in force: fewer acknowledgements may be enough. Not for a master that was
    removed: they are those of the master that removed it, and nothing here is confirmed by them."""
    if engine.membership.removed and engine.roles.state.role is not Role.SLAVE:
        engine.gate.held = engine.gate.held or REMOVED
        engine.tail_unconfirmed = True
        engine.housekeeping.leave_replicas()
    engine.replicas.required = engine.membership.required
    engine.advance()
    engine.housekeeping.replicas_moved()


def last_term(engine: "CommitLog") -> int:
    """Of the generations that the log has."""
    return max((g.term for g in engine.hub.generations), default=0)


def _refusal(engine: "CommitLog", change: RoleChange) -> StrataError | None:
    gate = engine.gate
    if gate.closing or gate.changing or gate.stopped_reason:
        return UnavailableError(gate.stopped_reason or gate.changing or "the log is closing")
    if not 0 <= change.term <= GREATEST_TERM:
        return InvalidRequestError(f"a term is at most {GREATEST_TERM}, and not {change.term}")
    if change.goes_on:
        return None if gate.taking_back else NotWritableError("nothing is taken back", "role")
    if change.role is Role.SLAVE:
        return _refusal_of_slave(engine, change)
    return _refusal_of_master(engine, change)


def _refusal_of_slave(engine: "CommitLog", change: RoleChange) -> StrataError | None:
    state, known = engine.roles.state, highest_term(engine)
    step = term_step_fault(engine, change.term)
    if step:
        return NotWritableError(step, "term")
    if not change.candidate or (change.term, change.candidate) == (state.term, state.candidate):
        return None
    fault = engine.membership.candidate_fault(change.candidate, change.term)
    if fault:
        return InvalidRequestError(fault)
    only_heard = not state.candidate and change.term == known > last_term(engine)
    if change.term <= known and not only_heard:
        return NotWritableError(
            f"term {known} was promised to {state.candidate or 'nobody'} or heard of: term "
            f"{change.term} is too late",
            "term",
        )
    return None


def _refusal_of_master(engine: "CommitLog", change: RoleChange) -> StrataError | None:
    known, membership, state = highest_term(engine), engine.membership, engine.roles.state
    if membership.members is not None:
        if membership.removed:
            return NotWritableError(REMOVED, "members")
        promised = (change.term, membership.member) == (state.term, state.candidate)
        empty = engine.offsets.appended == engine.offsets.minimum
        if not (promised or (empty and not known)) or change.term <= last_term(engine):
            return NotWritableError(
                f"term {change.term} is not promised to this member: {state.term} is, to "
                f"{state.candidate or 'nobody'}",
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


def term_step_fault(engine: "CommitLog", term: int) -> str:
    """Why a log that knows what it has takes no such term from another broker; "" if it may."""
    known, offsets = highest_term(engine), engine.offsets
    is_new = engine.membership.rejoining or offsets.appended == offsets.minimum
    if is_new or term <= known + LARGEST_TERM_STEP:
        return ""
    return (
        f"term {term} is more than {LARGEST_TERM_STEP} above term {known}, the highest known here: "
        "it is not believed. If it is right, mark this broker, stopped, as new (`stratamq replica "
        "restored`)"
    )


def _become_master(
    engine: "CommitLog",
    state: own_state.OwnState,
    worker: Worker,
    change: RoleChange,
    done: Done,
) -> None:
    gate = engine.gate
    gate.changing = "the broker is being promoted"
    engine.appender.refuse_all(
        PutStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the broker is being promoted")
    )
    term = change.term or highest_term(engine) + (not change.goes_on)
    role = replace(
        engine.roles.state,
        role=change.role,
        chosen_by=ChosenBy.OPERATOR,
        term=term,
        candidate=engine.membership.member,
        master="",
        reason=change.reason or f"it was promoted to term {term}",
    )
    if change.goes_on:
        role = engine.roles.state
    generations: list[Generation] = []

    def flushed(durable: bool | None) -> None:
        if durable is None:
            gate.changing = ""
            done(UnavailableError(gate.stopped_reason))
        elif not durable:
            gate.changing = ""
            done(UnavailableError("the log's end is not on the disk yet: nothing has changed"))
        else:
            worker.submit(lambda: _store(engine, state, role), role_stored)

    def role_stored(_: None, error: BaseException | None) -> None:
        if error is not None:
            done(_stop(engine, error))
            return
        previous = engine.hub.generations
        following = own_state.next_generation(
            previous[-1] if previous else None, engine.offsets.appended, engine.random, term
        )
        generations[:] = own_state.extend(previous, following)
        worker.submit(
            lambda: state.store_generations(list(generations), engine.segment_bytes), listed
        )

    def listed(_: None, error: BaseException | None) -> None:
        if error is not None:
            done(_stop(engine, error))
            return
        if not change.goes_on:
            log.warning("promoted", extra={"role": role.role.value, "term": term})
        _switch(engine, generations)
        done(None)

    engine.commit.request(engine.offsets.appended)
    engine.commit.wait(engine.offsets.appended, flushed)


def _become_slave(
    engine: "CommitLog",
    state: own_state.OwnState,
    worker: Worker,
    change: RoleChange,
    done: Done,
) -> None:
    gate, old = engine.gate, engine.roles.state
    gate.changing = "the broker becomes a slave"
    engine.appender.refuse_all(
        PutStatus.SERVICE_NOT_AVAILABLE, UnavailableError("the broker becomes a slave")
    )
    heard = change.term > 0
    role = RoleState(
        role=Role.SLAVE,
        chosen_by=ChosenBy.HIGHER_TERM if heard else ChosenBy.OPERATOR,
        term=max(change.term, highest_term(engine)),
        master=change.master,
        reason=change.reason or ("another was promoted" if heard else "it was demoted"),
        peers=old.peers,
        candidate=change.candidate,
    )
    if not role.candidate and role.term == old.term:
        role = replace(role, candidate=old.candidate)

    def role_stored(_: None, error: BaseException | None) -> None:
        if error is not None:
            done(_stop(engine, error))
            return
        was_master = engine.role is not Role.SLAVE
        log.warning("a slave from now on", extra={"reason": role.reason, "master": role.master})
        engine.tail_unconfirmed |= was_master
        _switch(engine, engine.hub.generations)
        engine.housekeeping.leave_replicas()
        done(None)

    worker.submit(lambda: _store(engine, state, role), role_stored)


def _store(engine: "CommitLog", state: own_state.OwnState, role: RoleState) -> None:
    """Blocking, durable on return: readers know what records will look like before any comes."""
    seals = engine.config.property_checksum and role.role is not Role.SLAVE
    place = state.begin_sealing(engine.offsets.appended, seals=seals, history_known=True)
    engine.roles.store(role)
    if role.role is not Role.SLAVE:
        engine.master_confirmed.drop()
    engine.offsets.sealed_from = place


def _switch(engine: "CommitLog", generations: list[Generation]) -> None:
    """The rest happens in memory: nothing of it can fail."""
    gate, state = engine.gate, engine.roles.state
    engine.role = gate.role = state.role
    engine.hub.is_slave = engine.role is Role.SLAVE
    gate.taking_back = ""
    gate.changing = gate.held = gate.uncertain = gate.master_address = ""
    engine.replicas.report([])
    engine.hub.generations = generations
    if state.role is not Role.SLAVE:
        engine.tail_unconfirmed = False
        engine.discover_topics()
    engine.hub.end_all()
    engine.advance()


def _stop(engine: "CommitLog", error: BaseException) -> StrataError:
    if not isinstance(error, OSError):
        raise error
    sentence = (
        f"a change of role could not be written ({error.strerror or error}): nothing more is "
        "written, restart the service to learn which role the broker has"
    )
    engine.gate.changing, engine.gate.stopped_reason = "", sentence
    log.critical("a change of role failed", extra={"error": str(error)})
    return NotWritableError(sentence, "role")


# --- taking no messages for the time being ---


def hold(engine: "CommitLog", worker: Worker, reason: str, has_peers: bool, done: Done) -> None:
    """Take no messages because of `reason`, "": take them again. Whether the broker has peers is
    durable before they are."""
    if engine.role is Role.SLAVE and not engine.gate.taking_back:
        done(NotWritableError("a slave takes no messages anyway", "role"))
        return
    if reason:
        engine.gate.held = reason
    if engine.roles.state.peers is has_peers:
        _held(engine, reason)
        done(None)
        return
    role = replace(engine.roles.state, peers=has_peers)

    def stored(_: None, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            done(NotWritableError(f"role.json could not be written: {error.strerror}", "role"))
        elif error is not None:
            raise error
        else:
            if engine.role is not Role.SLAVE or engine.gate.taking_back:
                _held(engine, reason)
            done(None)

    worker.submit(lambda: engine.roles.store(role), stored)


def _held(engine: "CommitLog", reason: str) -> None:
    engine.gate.held = reason
    if not reason and not engine.gate.taking_back and engine.tail_unconfirmed:
        engine.tail_unconfirmed = False
        engine.advance()
