"""The gateway: RocketMQ's own clients connect here."""

import asyncio

from stratamq.api.v1 import gateway_pb2_grpc
from stratamq.client import AsyncClient
from stratamq.errors import UnavailableError
from stratamq.rpc.address import join_address
from stratamq.service.front import Front
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq.service.sockets import listen
from stratamq_gateway.brokers import BrokerName, Brokers, members_at
from stratamq_gateway.checks import Checks
from stratamq_gateway.codes import RequestCode
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.listener import Listener
from stratamq_gateway.members import ConnectedClients
from stratamq_gateway.metrics import observe
from stratamq_gateway.routes import RetryTopics
from stratamq_gateway.servicer import SERVICE_NAME, GatewayServicer
from stratamq_gateway.table import handlers_of

EXPIRE_INTERVAL_S = 1.0
RETRY_S = 0.2


async def main() -> None:
    service = Service("gateway", GatewayConfig, __doc__)
    config = service.config
    listening = listen(config.remoting_address, "the gateway")
    address = join_address(*listening.getsockname()[:2])
    own = AsyncClient(service.endpoints)
    front = Front(config.root)
    members = ConnectedClients(service.clock, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    advertised = config.remoting_advertised or address
    where = BrokerName(config.cluster, await broker_name(own), advertised)
    others = members_at(config.brokers, service.tls.credentials())
    brokers = Brokers(where, others, service.clock)
    await brokers.look()
    for one in brokers.members:
        service.spawn(brokers.watch(one))
    retry_topics = RetryTopics(own)
    handlers = handlers_of(where, brokers, members, retry_topics, own, config, service.clock)
    server = service.server
    guards = (server.access, server.limits, service.recorder, service.server_tls)
    listener = Listener(front, members, handlers, *guards)
    service.spawn(listener.serve(listening))
    servicer = GatewayServicer(listener, where, address)
    service.offer(gateway_pb2_grpc.add_GatewayServiceServicer_to_server, servicer, SERVICE_NAME)

    checks = Checks(own, members, where.broker)

    def tick() -> float:
        members.expire()
        checks.look()
        return EXPIRE_INTERVAL_S

    service.tick(tick, lambda: observe(len(listener.connections), len(members.groups)))

    async def close() -> None:
        await checks.close()
        await front.close()
        await brokers.close()
        await own.close()

    await service.run(drain=listener.close, close=close, ready=True)


async def broker_name(own: AsyncClient) -> str:
    """Wait for the log. Clients keep the name in their files."""
    while True:
        try:
            return (await own.log_state()).broker_name
        except UnavailableError:
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    run_service(main)
