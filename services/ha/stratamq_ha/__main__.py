"""The replication service: ships the log to slaves, or follows a master."""

from functools import partial

from stratamq.follow.own_log import OwnLog
from stratamq.follow.tables import Owners
from stratamq.rpc.rooms import COMMITLOG, HA
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq.service.sockets import listen
from stratamq_ha import metrics
from stratamq_ha.cluster import Cluster, MasterRole
from stratamq_ha.config import HaConfig
from stratamq_ha.encryption import Encryption, InClear
from stratamq_ha.keeper import RoleKeeper
from stratamq_ha.master import Master, MasterListener
from stratamq_ha.metadata import MetadataFollower, answer
from stratamq_ha.operator_commands import OperatorCommands
from stratamq_ha.own_log import OwnLogView, ask_for_facts
from stratamq_ha.servicer import ReplicationServicer
from stratamq_ha.slave import Slave
from stratamq_ha.sockets import encrypt

TICK_S = 0.5


async def main() -> None:
    service = Service(HA, HaConfig, __doc__)
    config, files, clock, chance = service.config, service.files, service.clock, service.random
    own, owners = OwnLog(service.channels), Owners(service.channels)

    def new_generation() -> None:
        master.end_all()
        slave.retry()

    view, secure = OwnLogView(clock, lambda: master.moved(), new_generation), None
    if service.server_tls is not None:
        encryption = Encryption(service.server_tls, service.tls.members, config.rocketmq_slaves)
        secure = encryption.accepted
        encrypt(encryption.connected)
    elif service.asks_who_calls and not config.allowed_slaves:
        secure = InClear(config.rocketmq_slaves).accepted
    listener = MasterListener(
        lambda theirs, source: keeper.status_for(theirs, source),
        lambda found, source: keeper.slave_refused(found, source),
        partial(answer, own=own, owners=owners),
        secure,
    )
    slaves_at = listen(config.replication_address, "ha")
    master = Master(config, slaves_at, files, clock, view, own, listener)
    slave = Slave(config, own, clock, chance)
    instance, member = chance.getrandbits(64), config.own_member(master.address)
    cluster = Cluster(config, own, view, master, slave, MasterRole(files), instance, member)
    keeper = RoleKeeper(config, cluster, own, view, slave, clock)
    words = OperatorCommands(config, cluster, own, view, master, slave)
    metadata = MetadataFollower(slave, own, owners, config.metadata_interval_ms)
    servicer = ReplicationServicer(view, master, slave, cluster, keeper, words)

    def learned() -> None:
        master.learned(config.advertised_log_address or service.endpoints.advertised(COMMITLOG))

    def tick() -> float:
        metrics.SHIPPABLE.set(view.view.shippable)
        service.server.set_ready(view.ready and not view.stopped_reason, view.stopped_reason)
        return TICK_S

    service.offer(servicer)
    service.follow(view, replicable=True, demand=master.demand)
    service.tick(tick)
    facts = ask_for_facts(view, own, learned)
    for work in (facts, master.run(), slave.run(), keeper.run(), metadata.run()):
        service.spawn(work)
    await service.run(drain=master.drain)


if __name__ == "__main__":
    run_service(main)
