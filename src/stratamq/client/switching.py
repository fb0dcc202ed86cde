"""The conditions of a switchover, shown before it is requested. Pure.

`AsyncAdminClient.switchover` records the request. The agents carry it out, and give it up if one of
these conditions is not met.
"""

from dataclasses import dataclass

from stratamq.client.replication_state import ReplicationState
from stratamq.client.values import Election

LARGEST_LAG_BYTES = 64 << 20
"""A slave that has all but so much has it before the master waits for long."""


@dataclass(frozen=True, slots=True)
class Precondition:
    """One thing that must hold. `detail`: how it is, for people."""

    name: str
    holds: bool
    detail: str


def switchover_preconditions(
    member: str, election: Election, replication: ReplicationState | None
) -> list[Precondition]:
    """`replication`: as the master has it; None: it does not answer, or another member does."""
    known = ", ".join(sorted(election.agents)) or "none"
    slaves = {} if replication is None else {one.member: one for one in replication.slaves}
    slave = slaves.get(member)
    found = [
        Precondition("failover is not paused", not election.paused, _paused(election)),
        Precondition(
            "a member leads now", bool(election.leader), election.leader or "an election is on"
        ),
        Precondition(
            "it is another one",
            election.leader != member,
            f"{member} leads already"
            if election.leader == member
            else f"{election.leader or 'no member'} leads",
        ),
        Precondition("its agent is known", member in election.agents, f"known agents: {known}"),
        Precondition(
            "no switchover is under way",
            not election.switchover,
            f"to {election.switchover}" if election.switchover else "none",
        ),
        Precondition(
            "the election store answers",
            not election.store_problem,
            election.store_problem or "yes",
        ),
    ]
    if replication is not None and election.leader not in ("", member):
        end = replication.shippable_offset
        found.append(Precondition("there is something to take over", end > 0, f"{end} bytes"))
        connected = slave is not None and slave.connected
        found.append(
            Precondition("it follows the master", connected, "connected" if connected else "not so")
        )
        if slave is not None:
            lag = slave.lag_bytes
            found.append(
                Precondition("it is close behind", lag <= LARGEST_LAG_BYTES, f"{lag} bytes to go")
            )
    return found


def _paused(election: Election) -> str:
    return "paused: `stratamq cluster resume` ends it" if election.paused else "agents are at work"
