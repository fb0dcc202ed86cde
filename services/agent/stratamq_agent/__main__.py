"""The agent: keeps a cluster's master, together with the agents of the other members."""

import logging
from functools import partial

import grpc

from stratamq.api.v1 import agent_pb2, agent_pb2_grpc
from stratamq.client import AsyncClient
from stratamq.election.opening import open_store
from stratamq.election.pod_label import PodLabel
from stratamq.election.store import ElectionStore, Snapshot
from stratamq.errors import ConfigurationError
from stratamq.files.clock import machine_boot
from stratamq.files.port import Clock
from stratamq.formats.election_state import ElectionState
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.rooms import AGENT
from stratamq.service.process import OBSERVE_INTERVAL_S, Service
from stratamq.service.server import run_service
from stratamq_agent.agent import Agent, Timing
from stratamq_agent.config import AgentConfig
from stratamq_agent.metrics import Observer
from stratamq_agent.own_broker import OwnBroker
from stratamq_agent.servicer import SERVICE_NAME, AgentServicer

log = logging.getLogger(__name__)

ANSWER_S = 5.0
ROLES = {None: "", True: "master", False: "slave"}
WAKE_S = 1.0


async def main() -> None:
    service = Service("agent", AgentConfig, __doc__)
    config = service.config
    if not config.store:
        raise ConfigurationError(["agent.store: name the election store"])
    client = AsyncClient(service.endpoints, timeout_s=ANSWER_S)
    store = _NamedStore(config, config.etcd_credentials(), client, service.clock)
    agent = Agent(
        store,
        OwnBroker(client, machine_boot()),
        service.clock,
        Timing(config.ttl_ms * 1_000_000, config.loop_interval_ms / 1000),
        lambda: service.endpoints.advertised(AGENT),
        partial(_wake, service.endpoints.credentials),
    )
    servicer = AgentServicer(agent, config.store, config.ttl_ms)
    service.offer(agent_pb2_grpc.add_AgentServiceServicer_to_server, servicer, SERVICE_NAME)
    service.spawn(agent.run())
    service.tick(lambda: OBSERVE_INTERVAL_S, Observer(agent, config.ttl_ms).observe)
    if config.pod:
        service.spawn(PodLabel(config.pod, lambda: ROLES[agent.view.is_master]).run())
    try:
        await service.run(ready=True)
    finally:
        await store.close()
        await client.close()


class _NamedStore:
    """The election store: opened as soon as the log has told the name that the members share."""

    def __init__(
        self, config: AgentConfig, etcd: Credentials, client: AsyncClient, clock: Clock
    ) -> None:
        self._clock = clock
        self._etcd = etcd
        self._config = config
        self._client = client
        self._store: ElectionStore | None = None

    async def read(self) -> Snapshot:
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


async def _wake(credentials: Credentials, address: str) -> None:
    """One that does not answer looks by itself."""
    async with credentials.connect(grpc.aio, address, None) as channel:
        try:
            await agent_pb2_grpc.AgentServiceStub(channel).Wake(
                agent_pb2.WakeRequest(), timeout=WAKE_S
            )
        except grpc.aio.AioRpcError as error:
            log.info("an agent was not woken", extra={"address": address, "why": error.details()})


if __name__ == "__main__":
    run_service(main)
