"""The agent: keeps a cluster's master, together with the agents of the other members."""

from functools import partial

from stratamq.client import AsyncClient
from stratamq.election.kubernetes import PodLabel
from stratamq.errors import ConfigurationError
from stratamq.files.clock import machine_boot
from stratamq.rpc.rooms import AGENT
from stratamq.service.process import OBSERVE_INTERVAL_S, Service
from stratamq.service.server import run_service
from stratamq_agent.agent import Agent, Timing
from stratamq_agent.config import AgentConfig
from stratamq_agent.metrics import Observer
from stratamq_agent.own_broker import NamedStore, OwnBroker
from stratamq_agent.servicer import AgentServicer, wake

ANSWER_S = 5.0
ROLES = {None: "", True: "master", False: "slave"}


async def main() -> None:
    service = Service(AGENT, AgentConfig, __doc__)
    config = service.config
    if not config.store:
        raise ConfigurationError(["agent.store: name the election store"])
    client = AsyncClient(service.endpoints, timeout_s=ANSWER_S)
    store = NamedStore(config, config.etcd_credentials(), client, service.clock)
    agent = Agent(
        store,
        OwnBroker(client, machine_boot()),
        service.clock,
        Timing(config.ttl_ms * 1_000_000, config.loop_interval_ms / 1000),
        lambda: service.endpoints.advertised(AGENT),
        partial(wake, service.endpoints.credentials),
    )
    servicer = AgentServicer(agent, config.store, config.ttl_ms)
    service.offer(servicer)
    service.spawn(agent.run())
    service.tick(lambda: OBSERVE_INTERVAL_S, Observer(agent, config.ttl_ms).observe)
    if config.pod:
        service.spawn(PodLabel(config.pod, lambda: ROLES[agent.view.is_master]).run())
    try:
        await service.run(ready=True)
    finally:
        await store.close()
        await client.close()


if __name__ == "__main__":
    run_service(main)
