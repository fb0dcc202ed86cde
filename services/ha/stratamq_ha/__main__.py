"""The replication service: ships the log to slaves, or follows a master."""

import asyncio
import contextlib
import logging as std_logging
import random
from functools import partial

import grpc

from stratamq.api.v1 import replication_pb2_grpc
from stratamq.errors import StrataError
from stratamq.files.clock import SystemClock
from stratamq.files.generations import is_listed
from stratamq.files.real import RealFiles
from stratamq.follow.driver import run_follower
from stratamq.follow.own_log import OwnLog
from stratamq.follow.tables import Owners
from stratamq.rpc.endpoints import Channels, Endpoints
from stratamq.rpc.methods import COMMITLOG
from stratamq.service import logging
from stratamq.service.arguments import parse_arguments
from stratamq.service.config import load
from stratamq.service.room_lock import take_room_lock
from stratamq.service.server import Server, run_service
from stratamq_ha import metrics
from stratamq_ha.cluster import Cluster
from stratamq_ha.config import HaConfig
from stratamq_ha.keeper import RoleKeeper
from stratamq_ha.master import Master
from stratamq_ha.metadata import MetadataFollower, answer
from stratamq_ha.operator_words import OperatorWords
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.servicer import SERVICE_NAME, ReplicationServicer
from stratamq_ha.slave import Slave
from stratamq_ha.sockets import listen

log = std_logging.getLogger(__name__)

ASK_AGAIN_S = 0.2
TICK_S = 0.5


async def main() -> None:
    arguments = parse_arguments("ha", __doc__ or "")
    config = load(HaConfig, "ha", arguments.toml_path, overrides=arguments.overrides)
    logging.configure("ha", config.log_format == "json", config.log_level)
    files, clock = RealFiles(config.root), SystemClock()
    lock = take_room_lock(files, "ha")
    addresses = {COMMITLOG: config.log_address} if config.log_address else {}
    endpoints = Endpoints(config.root, addresses)
    channels = Channels(endpoints, grpc.aio.insecure_channel)
    own, view = OwnLog(channels), OwnLogView(clock)
    master = Master(config, listen(config.replication_address), files, clock, view, own)
    chance = random.SystemRandom()
    slave = Slave(config, own, clock, chance)
    instance, member = chance.getrandbits(64), config.own_member(master.address)
    cluster = Cluster(config, own, view, master, slave, instance, member)
    keeper = RoleKeeper(config, cluster, own, view, master, slave, clock)
    words = OperatorWords(config, cluster, own, view, master, slave, clock)
    owners = Owners(channels)
    master.documents = partial(answer, own=own, owners=owners)
    metadata = MetadataFollower(slave, own, owners, config.metadata_interval_ms)
    servicer = ReplicationServicer(view, master, slave, cluster, keeper, words, clock)
    server = Server(
        "ha",
        root=config.root,
        advertised_host=config.advertised_host,
        metrics_address=config.metrics_address,
        stop_grace_ms=config.stop_grace_ms,
    )
    server.add_servicer(
        replication_pb2_grpc.add_ReplicationServiceServicer_to_server, servicer, SERVICE_NAME
    )
    asking = asyncio.Event()

    def new_generation() -> None:
        master.end_all()
        slave.again()

    view.on_moved = master.moved
    view.on_generation = new_generation
    view.on_opened = asking.set

    async def ask() -> None:
        """Learn what the log is, whenever it has begun anew."""
        while True:
            await asking.wait()
            asking.clear()
            learned = False
            while not learned:
                try:
                    facts = await own.facts()
                    view.learned(facts)
                    learned = facts.generation == view.generation
                    master.log_address = config.advertised_log_address or endpoints.address(
                        COMMITLOG
                    )
                except StrataError as error:
                    log.debug("the log does not answer", extra={"error": str(error)})
                if not learned:
                    await asyncio.sleep(ASK_AGAIN_S)

    async def tick() -> None:
        while True:
            metrics.SHIPPABLE.set(view.view.shippable)
            server.set_ready(view.ready and not view.stopped_reason, view.stopped_reason)
            await asyncio.sleep(TICK_S)

    following = run_follower(
        channels,
        view,
        random=chance,
        replicable=True,
        is_ours=partial(is_listed, files),
    )
    work = [following, ask(), tick(), master.run(), slave.run(), keeper.run(), metadata.run()]
    tasks = [asyncio.ensure_future(each) for each in work]
    for task in tasks:
        server.supervise(task)

    async def drain() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(config.stop_slaves_ms / 1000):
                await master.caught_up()

    async def close() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for channel in channels.close():
            await channel.close()
        lock.close()

    log.info("slaves connect here", extra={"address": master.address})
    await server.serve(config.address, drain=drain, close=close, ready=False)


if __name__ == "__main__":
    run_service(main)
