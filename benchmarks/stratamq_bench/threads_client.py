"""The client process of single messages from threads: so many threads, each message waited for.

    python -m stratamq_bench.threads_client --root DIR --state FILE [--in-flight 64] [--seconds 10]
                                            [--way call|send|producer]

Prints one JSON object, as `unary_client` does for tasks.
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

from stratamq.client import Client, Message, Producer, SendResult, connect
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.load import Load, Places
from stratamq_bench.unary_client import Called, Told, message_of, parser, print_called

Store = Callable[[Message], SendResult]


def storing(client: Client, producer: Producer, way: str) -> Store:
    """One message by a call of its own, by `send`, or by a producer's delivery."""
    if way == "call":
        return lambda message: client.send_all([message])[0].check()
    if way == "send":
        return client.send_message
    return lambda message: producer.send_message(message).result()


class Threads:
    """Store one message at a time each, to the queues in turn."""

    def __init__(self, store: Store, load: Load, places: Places) -> None:
        self.results: list[tuple[int, SendResult]] = []
        self.took_ms: list[float] = []
        self._store = store
        self._load = load
        self._places = places.in_turn
        self._numbers = count(load.next_number)

    def all_for(self, seconds: float, in_flight: int) -> float:
        """Returns the seconds it took."""
        began = time.perf_counter()
        with ThreadPoolExecutor(in_flight) as pool:
            list(pool.map(self._store_until, [began + seconds] * in_flight))
        self._load.next_number = next(self._numbers)
        self._numbers = count(self._load.next_number)
        return time.perf_counter() - began

    def _store_until(self, end: float) -> None:
        while (began := time.perf_counter()) < end:
            number = next(self._numbers)
            result = self._store(message_of(self._load, number, self._places))
            self.took_ms.append((time.perf_counter() - began) * 1e3)
            self.results.append((number, result))


def run(options: argparse.Namespace) -> Called:
    with ExitStack() as stack:
        told = Told(options)
        client = stack.enter_context(connect(options.root, retry_timeout_s=START_TIMEOUT_S))
        producer = stack.enter_context(client.producer())
        caller = Threads(storing(client, producer, options.way), told.load, told.places)
        caller.all_for(options.warm_up, options.in_flight)
        warmed, meter = len(caller.took_ms), told.meter()
        seconds = caller.all_for(options.seconds, options.in_flight)
        used = meter.seconds()
    return told.called(caller.results, caller.took_ms[warmed:], seconds, used)


if __name__ == "__main__":
    print_called(run(parser(__doc__).parse_args()))
