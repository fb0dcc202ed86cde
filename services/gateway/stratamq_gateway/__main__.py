"""The gateway: RocketMQ's own clients connect here."""

from functools import partial

from stratamq.client import AsyncClient
from stratamq.rpc.address import join_address
from stratamq.service.front import Front
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq.service.sockets import listen
from stratamq_gateway.admin_access import PermissionsInUse
from stratamq_gateway.brokers import BrokerName, Brokers, first_state, members_at
from stratamq_gateway.checks import Checks, ask_member
from stratamq_gateway.codes import RequestCode
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.listener import Listener
from stratamq_gateway.locks import BrokerLocks
from stratamq_gateway.members import EXPIRE_INTERVAL_S, ConnectedClients
from stratamq_gateway.messaging.http2_servers import clear_server
from stratamq_gateway.messaging.routing import Door
from stratamq_gateway.messaging.server import MessagingServer
from stratamq_gateway.metrics import observe
from stratamq_gateway.other_gateways import OtherGateways
from stratamq_gateway.servicer import GatewayServicer
from stratamq_gateway.table import handlers_of


async def main() -> None:
    service = Service("gateway", GatewayConfig, __doc__, instance=GatewayConfig.instance)
    config, clock = service.config, service.clock
    listening = [listen(one, "the gateway") for one in config.remoting_listens()]
    address = join_address(*listening[0].getsockname()[:2]) if listening else ""
    own, front = AsyncClient(service.endpoints), Front(config.root)
    members = ConnectedClients(clock, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    state = await first_state(own)
    locks = BrokerLocks(service.channels, clock, own.log_state, state)
    where = BrokerName(config.cluster, state.broker_name, config.remoting_advertised or address)
    credentials, server = service.tls.credentials(), service.server
    brokers = Brokers(where, members_at(config.brokers, credentials), clock)
    await brokers.start(service.spawn)
    permissions = PermissionsInUse(server.access, service.worker("permissions"))
    others = OtherGateways(service.channels, config, members, clock, service.random)
    told = (members, others.clients, locks, own, config, clock, permissions)
    guards = (server.access, server.limits, service.recorder, service.server_tls)
    listener = Listener(front, members, handlers_of(where, brokers, *told), *guards)
    for one in listening:
        service.spawn(listener.serve(one))
    routed = (Door(config.grpc_advertised, config.grpc_address), brokers, where)
    clear = clear_server(config.grpc_server, config.log_format, serves_web=config.console)
    messaging = MessagingServer(front, own, clock, *routed, clear, *guards)
    service.spawn(others.run())
    if config.grpc_address:
        await messaging.start(config.grpc_address, service.spawn)
    service.offer(GatewayServicer(listener, where, address, messaging))
    checks = Checks(own, members.producers.keys, partial(ask_member, members, where.broker))

    def tick() -> float:
        members.expire()
        messaging.tick()
        checks.look()
        return EXPIRE_INTERVAL_S

    service.tick(tick, lambda: observe(len(listener.connections), len(members.groups)))

    async def drain() -> None:
        await checks.close()
        await listener.close()
        await messaging.close()

    async def close() -> None:
        await front.close()
        await brokers.close()
        await own.close()

    await service.run(drain=drain, close=close, ready=True)


if __name__ == "__main__":
    run_service(main)
