"""Cases of a slave: catching up, being waited for, lagging."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from stratamq_bench import child
from stratamq_bench.following import watch_catching_up
from stratamq_bench.plan import MIB, Plan, alternate
from stratamq_bench.report import Case, Measured, compared, measured
from stratamq_bench.streaming import Slave, Stream, StreamedBroker, floor_of, stream_floor

MESSAGES, LEAST_MESSAGES = 1_500_000, 50_000
LAG_SHARE = 0.3


def catch_up(place: Path, plan: Plan) -> Case:
    """A new slave reads what its master has, beside the same bytes over recv → gRPC stream →
    memcpy."""
    stream = Stream(role="ASYNC_MASTER", segment_bytes=256 * MIB)
    with StreamedBroker(place, plan, stream) as master:
        stored = master.fill(plan.scaled(MESSAGES, LEAST_MESSAGES))
        end = master.client.log_state().appended_offset
        how: dict[str, object] = {"frame_bytes": round(end / stored), "directory": place}
        floors, found = alternate(
            plan.rounds,
            lambda: floor_of(plan, "replicate", **how),
            lambda: _caught_up(place, master, stored, end),
        )
    more = {"measured": {"log_mb": end / 1e6}, "messages": stored * len(found)}
    return compared("floor_replicate", floors, found, plan.body, **more)


def _caught_up(place: Path, master: StreamedBroker, stored: int, end: int) -> Measured:
    """One slave from nothing, timed from the first look at it; its bytes are compared.

    Timed with its start when it had everything by then.
    """
    started = time.perf_counter()
    with Slave(place, master) as slave:
        pids = {"master ha": master.broker.pids["ha"]}
        pids |= {f"slave {room}": pid for room, pid in slave.broker.pids.items()}
        found = watch_catching_up(pids, lambda: slave.end, end, started)
        slave.check_bytes()
        root = slave.broker.root
    shutil.rmtree(root)
    return measured(stored * found.share, found.seconds, found.cpu_s)


def sync(place: Path, plan: Plan) -> Case:
    """Appends that wait for a slave beside appends that do not: two pairs of brokers in turn."""
    with (
        StreamedBroker(place / "sync", plan, Stream(role="SYNC_MASTER")) as waiting,
        StreamedBroker(place / "async", plan, Stream(role="ASYNC_MASTER")) as beside,
        Slave(place / "sync", waiting) as slave,
        Slave(place / "async", beside) as slave_beside,
    ):

        def round_of(master: StreamedBroker, slave: Slave) -> Measured:
            slave.catch_up()
            found = master.round()
            slave.catch_up()
            slave.check_bytes()
            return found

        floors, rounds = alternate(
            plan.rounds, lambda: round_of(beside, slave_beside), lambda: round_of(waiting, slave)
        )
    return compared("the same, ASYNC_MASTER", floors, rounds, plan.body)


def single(place: Path, plan: Plan) -> Case:
    """One message in flight, sent and waited for: what it costs the services of both brokers, under
    SYNC_MASTER and ASYNC_MASTER in turn."""
    one = Stream(role="SYNC_MASTER", followers=True, segment_bytes=16 * MIB)
    with (
        StreamedBroker(place / "sync", plan, one) as waiting,
        StreamedBroker(place / "async", plan, replace(one, role="ASYNC_MASTER")) as beside,
        Slave(place / "sync", waiting) as slave,
        Slave(place / "async", beside) as slave_beside,
    ):

        def round_of(master: StreamedBroker, slave: Slave) -> Measured:
            slave.catch_up()
            pids = {f"slave {room}": pid for room, pid in slave.broker.pids.items()}
            found = child.run(
                "single_clients.by_tasks",
                root=master.broker.root,
                state=master.state_file,
                body=plan.body,
                in_flight=1,
                way="send",
                warm_up=plan.warm_up_s,
                seconds=plan.round_s,
                beside={"ha": master.broker.pids["ha"], **pids},
            )
            slave.catch_up()
            slave.check_bytes()
            return Measured(**found)

        floors, rounds = alternate(
            plan.rounds, lambda: round_of(beside, slave_beside), lambda: round_of(waiting, slave)
        )
    measured = {"services_us": _services_us(rounds), "async_services_us": _services_us(floors)}
    return compared("the same, ASYNC_MASTER", floors, rounds, plan.body, measured=measured)


def _services_us(rounds: Sequence[Measured]) -> float:
    """CPU of all processes but the client's, a message."""
    each = (one.cpu_us_per_message for one in rounds)
    return median(sum(cpu.values()) - cpu["client"] for cpu in each)


def lag(place: Path, plan: Plan) -> Case:
    """How far a slave is behind while its master takes 0.3 of what `floors.stream` can.

    `ratio` is what was sent of what the floor can; the slave's lag is what counts.
    """
    floors = [stream_floor(place, plan, sync=True)]
    stream = Stream(role="ASYNC_MASTER")
    with StreamedBroker(place, plan, stream) as master, Slave(place, master) as slave:
        slave.catch_up()
        master.watched = lambda: (master.client.log_state().flushed_offset, slave.end)
        rate = LAG_SHARE * floors[0].messages_per_s
        rounds = [master.round(rate) for _ in range(plan.rounds)]
        slave.catch_up()
        slave.check_bytes()
    floors += [stream_floor(place, plan, sync=True)] * plan.rounds
    sent = fmean(one.messages_per_s for one in rounds)
    more = {
        "messages_per_s": sent,
        "bytes_per_s": sent * plan.body,
        "ratio": sent / fmean((floors[0].messages_per_s, floors[-1].messages_per_s)),
        "measured": {"lag_ms": max(one.more["age_ms"] for one in rounds)},
    }
    return compared("floor_stream --record-crc --sync", floors, rounds, plan.body, **more)
