"""The election store, opened once the log has named the broker, whose members share the name."""

from stratamq.client import AsyncClient
from stratamq.election.opening import open_store
from stratamq.election.store import ElectionStore, StoredState
from stratamq.files.port import Clock
from stratamq.formats.election_state import ElectionState
from stratamq.rpc.credentials import Credentials
from stratamq_agent.config import AgentConfig


class NamedStore:
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
