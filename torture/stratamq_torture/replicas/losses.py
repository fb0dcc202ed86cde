"""How a master is lost, and how it comes back: each by name, a few lines."""

from collections.abc import Callable
from dataclasses import dataclass

from stratamq_torture.replicas.brokers import ROOMS, Brokers


@dataclass(frozen=True, slots=True)
class Loss:
    """`strike` and `undo` receive the broker; `undo` comes after the other's
    promotion. `doc`: for people."""

    doc: str
    strike: Callable[[Brokers, str], None]
    undo: Callable[[Brokers, str], None]


def _kill(brokers: Brokers, name: str) -> None:
    brokers[name].kill()


def _start_again(brokers: Brokers, name: str) -> None:
    brokers[name].start()


def _pause(brokers: Brokers, name: str) -> None:
    for room in ROOMS:
        brokers[name].services.pause(room)


def _resume(brokers: Brokers, name: str) -> None:
    for room in ROOMS:
        brokers[name].services.resume(room)


def _cut_off(brokers: Brokers, name: str) -> None:
    for broker in (brokers[name], brokers.other(name)):
        broker.unreachable()


def _connect_again(brokers: Brokers, name: str) -> None:
    for broker in (brokers[name], brokers.other(name)):
        broker.reachable()


LOSSES = {
    "killed": Loss("SIGKILL to all of its processes; started again later", _kill, _start_again),
    "paused": Loss("SIGSTOP to all of its processes; they continue later", _pause, _resume),
    "cut-off": Loss(
        "no connection between the two, while its producers and consumers still reach it",
        _cut_off,
        _connect_again,
    ),
}
