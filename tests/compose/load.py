"""A producer that continues through every failure, and its acknowledgements."""

import threading

from stratamq.client import SendResult, SendStatus
from stratamq.errors import StrataError
from tests.compose.stack import Stack, until

BODY = b"x" * 400
BURST, PAUSE_S = 20, 0.01
"""About 2 000 messages a second, so that a fault of seconds meets traffic, not a full disk."""
QUEUES = 4


class Load:
    """Sends numbered messages from a thread of its own, from `with` on until its end."""

    def __init__(
        self, stack: Stack, topic: str, side: str = "", *, queues: int | None = QUEUES
    ) -> None:
        """`queues`: how many are written in turn; None: the client chooses."""
        self.topic = topic
        self._side = side
        self._queues = queues
        self.acknowledged: set[str] = set()
        """Unique keys that were answered PUT_OK."""
        self.unconfirmed: set[str] = set()
        """Stored, and not as safe as configured: answered so."""
        self.failed: set[str] = set()
        """Not stored, or perhaps stored."""
        self._stack = stack
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def continues(self, messages: int = 500) -> None:
        """So many more are acknowledged from now on."""
        wanted = len(self.acknowledged) + messages
        until(
            lambda: len(self.acknowledged) >= wanted or not self._thread.is_alive(),
            f"{messages} more acknowledged messages of {self.topic}",
        )
        assert self._thread.is_alive(), "the producer has died"

    def _run(self) -> None:
        with self._stack.client(self._side) as client:
            while not self._stopping.is_set():
                try:
                    with client.producer(
                        on_result=self._answered, batch_bytes=16_384, retry=False
                    ) as producer:
                        self._send(producer)
                except StrataError:
                    # Nothing was connected, or a close had to give up: its messages are `failed`.
                    self._stopping.wait(PAUSE_S)

    def _send(self, producer) -> None:
        while not self._stopping.is_set():
            for _ in range(BURST):
                self._number += 1
                key = f"{self.topic}-{self._number}"
                queue = self._number % self._queues if self._queues else None
                producer.send(self.topic, BODY, unique_key=key, queue_id=queue, keys=[key])
            self._stopping.wait(PAUSE_S)

    def _answered(self, result: SendResult) -> None:
        if result.error is not None:
            self.failed.add(result.unique_key)
        elif result.status is SendStatus.PUT_OK:
            self.acknowledged.add(result.unique_key)
        else:
            self.unconfirmed.add(result.unique_key)


def keys_of(stack: Stack, topic: str, side: str = "") -> list[str]:
    """The unique keys of every message of the topic that the broker's consumers are given."""
    with stack.client(side) as client:
        return [message.unique_key for message in client.consume(topic)]


def lost(stack: Stack, load: Load, side: str = "") -> set[str]:
    """What was acknowledged and is not to be had, once the queues have caught up with the log."""
    with stack.client(side) as client:

        def caught_up() -> bool:
            state = client.admin.dispatch_state()
            assert not state.stopped_reason, state.stopped_reason
            return state.applied_offset >= client.log_state().confirmed_offset

        try:
            until(caught_up, "the dispatcher to catch up")
        except AssertionError:
            log = stack.log_container(side)
            print(stack.execute(log, "stratamq", "status", check=False))
            print(stack.run("logs", "--tail", "60", log, check=False).stdout)
            raise
    return load.acknowledged - set(keys_of(stack, load.topic, side))
