"""What more cores would do, from the CPU that each process spends on a message.

A broker is a pipeline of processes that run at the same time. Each is bound to about one core (an
event loop; flushes and the wire's threads do not hold its lock, so that it can be a little more):
the dearest one saturates first and bounds the broker. The log is the only one of them that cannot
be multiplied within a broker. A machine holds as many brokers as its cores have CPU for, and
topics are spread over them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forecast:
    """`broker_per_s`: messages a second of one broker with cores enough, bounded by `dearest`.
    `machine_per_s`: of all brokers of a machine, clients included, with `brokers` of them."""

    dearest: str
    broker_per_s: float
    machine_per_s: float
    brokers: int
    cores: int


CLIENTS = ("client", "consumer")
"""Of these there can be as many as anyone likes."""


def forecast(cpu_us_per_message: Mapping[str, float], cores: int) -> Forecast:
    """`cpu_us_per_message` of every process, clients too: they run on the same machine."""
    rooms = {name: us for name, us in cpu_us_per_message.items() if name not in CLIENTS}
    dearest = max(rooms, key=lambda name: rooms[name])
    broker_per_s = 1e6 / rooms[dearest]
    machine_per_s = cores * 1e6 / sum(cpu_us_per_message.values())
    brokers = math.ceil(machine_per_s / broker_per_s)
    return Forecast(dearest, broker_per_s, machine_per_s, brokers, cores)
