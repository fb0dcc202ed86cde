"""The calls to the broker that an agent is beside."""

from stratamq.client import AsyncClient, PeerView, ReplicationState, Role
from stratamq_agent.decision import Own, Peer


class OwnBroker:
    """Calls raise StrataError; UnavailableError when the broker does not answer."""

    def __init__(self, client: AsyncClient, boot: str) -> None:
        self._client = client
        self._boot = boot

    async def standing(self) -> Own:
        """As of now; of the other members as of a second ago. UnavailableError, too, when the log
        alone does not answer: the replication service has what it was."""
        log = await self._client.log_state()
        state = await self._client.admin.replication_state()
        end = state.following.appended_offset if state.following else state.shippable_offset
        return Own(
            state.member,
            _is_master(state.role),
            state.held_reason,
            state.term,
            (state.generation, end),
            _counts(state),
            end <= state.minimum_offset,
            tuple(_peer(one) for one in state.peers),
            frozenset(one.member for one in state.slaves if one.connected and one.counts),
            _members(state),
            _is_master(log.role) and not log.lease_over,
        )

    async def promote(self) -> int:
        """The new term. NotWritableError with the reasons against it."""
        return (await self._client.admin.promote()).term

    async def demote(self) -> None:
        """NotWritableError when no slave has everything."""
        await self._client.admin.demote()

    async def grant(self, term: int, until_ns: int) -> None:
        """The log, a master's of `term`, may answer up to then: CLOCK_BOOTTIME, ns."""
        await self._client.admin.grant_lease(term, self._boot, until_ns)


def _is_master(role: Role | None) -> bool:
    return role is not None and role is not Role.SLAVE


def _counts(state: ReplicationState) -> bool:
    members = state.members
    return members is not None and members.is_active(state.member) and not state.rejoining


def _members(state: ReplicationState) -> frozenset[str]:
    listed = state.members.members if state.members is not None else ()
    return frozenset(f"{one.name}={one.address}" for one in listed)


def _peer(view: PeerView) -> Peer:
    return Peer(
        view.member,
        view.answers,
        _is_master(view.role),
        view.term,
        (view.generation, view.end_offset),
        not view.rejoining,
        view.held,
    )
