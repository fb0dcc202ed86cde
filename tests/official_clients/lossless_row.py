"""at-least-once: processes are killed while messages are sent, received and acknowledged."""

import os
import threading

from clients import consumer, in_time, killed, message, nothing, producer, tried

COUNT = int(os.environ.get("ROW_MESSAGES", "1000"))
KILLS = 5
WORKERS = 4
SHORTLY_HIDDEN_S = 30
AGAIN_S = 2 * SHORTLY_HIDDEN_S
"""Until what comes again has come: a busy machine is late."""


class Work:
    """What workers do until they are stopped. Calls that fail are of a broker that is away."""

    def __init__(self, worker):
        self.received, self.acknowledged, self.came_back = set(), set(), set()
        self._worker = worker
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._go_on) for _ in range(WORKERS)]

    def __enter__(self):
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for one in self._threads:
            one.join()

    def _go_on(self):
        while not self._stopped.is_set():
            try:
                for found in self._worker.receive(32, SHORTLY_HIDDEN_S) or []:
                    self.received.add(found.message_id)
                    if found.message_id in self.acknowledged:
                        self.came_back.add(found.message_id)
                    self._worker.ack(found)
                    self.acknowledged.add(found.message_id)
            except Exception:  # noqa: BLE001 - the client has no class of its own for it
                self._stopped.wait(0.1)


def at_least_once():
    """Every message whose send was answered is received, and none whose acknowledgement was
    answered comes again. One whose acknowledgement was stored and not answered need not."""
    sent = set()
    with (
        producer("lossless") as sender,
        consumer("lossless", "lossless", wait_s=1) as worker,
        Work(worker) as work,
    ):
        for number in range(COUNT):
            if number % (COUNT // KILLS) == COUNT // KILLS // 2:
                killed()
            made = message("lossless", f"{number}")
            receipt = in_time(
                lambda made=made: tried(lambda: sender.send(made)), f"{number} is not sent"
            )
            sent.add(receipt.message_id)
        in_time(lambda: sent <= work.received, "not all are received")
        threading.Event().wait(AGAIN_S)
    with consumer("lossless", "lossless", wait_s=1) as worker:
        nothing(worker, 1)
    assert not work.came_back, f"{len(work.came_back)} come again, and were acknowledged"
