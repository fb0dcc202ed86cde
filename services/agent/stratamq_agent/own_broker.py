"""An agent's calls to its own broker, and the election store of that broker's name."""

from stratamq.client import AsyncClient, PeerView, ReplicationState, Role
from stratamq.election.opening import open_store
from stratamq.election.store import ElectionStore, StoredState
from stratamq.files.port import Clock
from stratamq.formats.election_state import ElectionState
from stratamq.rpc.credentials import Credentials
from stratamq_agent.config import AgentConfig
from stratamq_agent.decision import OtherMember, Own


class OwnBroker:
    """Calls raise StrataError; UnavailableError when the broker does not answer."""

    def __init__(self, client: AsyncClient, boot: str) -> None:
        self._client = client
        self._boot = boot

    async def standing(self) -> Own:
        """Return the broker's present state; that of the other members may be a second old. Raises
        UnavailableError, also if only the log does not respond: the replication service has its
        last state."""
        log = await self._client.log_state()
        state = await self._client.admin.replication_state()
        end = state.following.appended_offset if state.following else state.shippable_offset
        ended, members = log.lead_ended_reason, state.members
        required = members.required if members is not None else 0
        return Own(
            state.member,
            _is_master(state.role),
            log.held_reason or ("" if ended else state.held_reason),
            state.term,
            (state.generation, end),
            _counts(state),
            end <= state.minimum_offset,
            tuple(_peer(one) for one in state.peers),
            frozenset(one.member for one in state.slaves if one.connected and one.counts),
            _members(state),
            _is_master(log.role) and not log.lease_over,
            log.unable_reason,
            log.unable_ms * 1_000_000,
            log.confirmed_offset,
            members.quorum if members is not None else 0,
            required if log.role is Role.SYNC_MASTER else 0,
            ended,
            bool(ended and state.held_reason),
        )

    async def promote(self, succeeds: str) -> int:
        """The new term. `succeeds`: the member that has ended its lead for this one.
        NotWritableError with the reasons against it."""
        return (await self._client.admin.promote(succeeds=succeeds)).term

    async def demote(self) -> None:
        """NotWritableError when no slave has everything."""
        await self._client.admin.demote()

    async def grant(self, term: int, until_ns: int) -> None:
        """The log, a master's of `term`, may answer up to then: CLOCK_BOOTTIME, ns."""
        await self._client.admin.grant_lease(term, self._boot, until_ns)

    async def end_lead(self, term: int, until_ns: int, reason: str) -> None:
        """The log, a master's of `term`, answers nothing more; grants up to then are void."""
        await self._client.admin.grant_lease(term, self._boot, until_ns, ended_reason=reason)


def _is_master(role: Role | None) -> bool:
    return role is not None and role is not Role.SLAVE


def _counts(state: ReplicationState) -> bool:
    members = state.members
    return members is not None and members.is_active(state.member) and not state.rejoining


def _members(state: ReplicationState) -> frozenset[str]:
    listed = state.members.members if state.members is not None else ()
    return frozenset(f"{one.name}={one.address}" for one in listed)


def _peer(view: PeerView) -> OtherMember:
    return OtherMember(
        view.member,
        view.answers,
        _is_master(view.role),
        view.term,
        (view.generation, view.end_offset),
        not view.rejoining,
        view.held,
    )


class NamedStore:
    """The election store, opened once the log has named the broker: its members share the name."""

    def __init__(
        self, config: AgentConfig, etcd: Credentials, client: AsyncClient, clock: Clock
    ) -> None:
        self._clock = clock
        self._etcd = etcd
        self._config = config
        self._client = client
        self._store: ElectionStore | None = None

    async def read(self) -> StoredState:
        return await (await self._opened()).read()

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        return await (await self._opened()).swap(state, revision)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _opened(self) -> ElectionStore:
        if self._store is None:
            config = self._config
            name = (await self._client.log_state()).broker_name
            ttl_s, timeout_s = -(-config.ttl_ms // 1000), config.retry_timeout_ms / 1000
            self._store = open_store(config.store, name, ttl_s, timeout_s, self._clock, self._etcd)
        return self._store
