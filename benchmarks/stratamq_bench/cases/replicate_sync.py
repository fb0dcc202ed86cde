"""Appends that wait for a slave beside appends that do not: two pairs of brokers in turn."""

from pathlib import Path
from statistics import median

from stratamq_bench.plan import Plan, alternate, ratio_of
from stratamq_bench.replica import Slave
from stratamq_bench.report import Case, Floor
from stratamq_bench.streaming import Round, Stream, StreamedBroker, cpu_of


def run(place: Path, plan: Plan) -> Case:
    waits, does_not_wait = Stream(role="SYNC_MASTER"), Stream(role="ASYNC_MASTER")
    with (
        StreamedBroker(place / "sync", plan, waits) as measured,
        StreamedBroker(place / "async", plan, does_not_wait) as beside,
        Slave(place / "sync", measured) as measured_slave,
        Slave(place / "async", beside) as slave_beside,
    ):

        def round_of(master: StreamedBroker, slave: Slave) -> Round:
            slave.catch_up()
            found = master.round()
            slave.catch_up()
            slave.check_bytes()
            return found

        floors, rounds = alternate(
            plan.rounds,
            lambda: round_of(beside, slave_beside),
            lambda: round_of(measured, measured_slave),
        )
    rates, floor_rates = [one.rate for one in rounds], [one.rate for one in floors]
    return Case(
        case="replicate-sync",
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * plan.body,
        floor=Floor("the same, ASYNC_MASTER", median(floor_rates), cpu_of(floors)),
        ratio=ratio_of(rates, floor_rates),
        cpu_us_per_message=cpu_of(rounds),
        messages=sum(one.messages for one in rounds),
    )
