"""How far a slave is behind while its master takes 0.3 of what `floor_stream` can."""

from pathlib import Path
from statistics import fmean

from stratamq_bench.plan import Plan
from stratamq_bench.replica import Slave
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream, StreamedBroker, cpu_of, floor_of, stream_floor

SHARE = 0.3


def run(place: Path, plan: Plan) -> Case:
    """`ratio` is what was sent of what the floor can; the slave's lag is what counts."""
    floors = [stream_floor(place, plan, sync=True)]
    stream = Stream(role="ASYNC_MASTER")
    with StreamedBroker(place, plan, stream) as master, Slave(place, master) as slave:
        slave.catch_up()
        with master.broker.client() as client:
            master.watched = lambda: (client.log_state().flushed_offset, slave.end)
            rounds = [master.round(SHARE * floors[0]["messages_per_s"]) for _ in range(plan.rounds)]
        slave.catch_up()
        slave.check_bytes()
    floors.append(stream_floor(place, plan, sync=True))
    rate = fmean(one.rate for one in rounds)
    return Case(
        case="replicate-lag",
        messages_per_s=rate,
        bytes_per_s=rate * plan.body,
        floor=floor_of("floor_stream --record-crc --sync", floors),
        ratio=rate / fmean(floor["messages_per_s"] for floor in floors),
        cpu_us_per_message=cpu_of(rounds),
        measured={"lag_ms": max(one.worst_age_ms for one in rounds)},
        messages=sum(one.messages for one in rounds),
    )
