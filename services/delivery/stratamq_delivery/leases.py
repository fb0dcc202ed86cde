"""Leases of clients, and the tokens by which a client that asks again gets the same hand-out.

A lease hides all messages that a client of a group was handed out with it: one call renews it,
whatever their number. Leases are in memory. A service that starts, or takes over, gives each client
the longest lease, in which it can renew. So a restart hides a dead client's messages for at most
`LONGEST_MS`, and hands out no living client's.

A client that did not get an answer asks again with the same attempt id. The tokens of its hand-outs
are computed from it, so that the state alone, on any member, shows what was handed out. The call
whose answer it did not wait for may still be under way: that one hands out nothing any more.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from stratamq.errors import UnavailableError
from stratamq_delivery.shared_queue import SharedQueue
from stratamq_delivery.waiting_line import Wish

LONGEST_MS = 60_000
TOKEN_COUNT = 16
"""Hand-outs of one attempt id from one queue: one for each number of attempts."""


class Leases:
    """Until when the clients of each group live, store time."""

    def __init__(self) -> None:
        self._until_ms: dict[tuple[str, str], int] = {}
        self._first_ms = 0
        self._epoch = -1
        self._kept = 0

    def begin(self, epoch: int, now_ms: int) -> None:
        """Called before anything is decided; another epoch is another start."""
        if epoch != self._epoch:
            self._epoch, self._first_ms = epoch, now_ms + LONGEST_MS

    def renew(self, group: str, client: str, now_ms: int, for_ms: int) -> int:
        """Returns until when."""
        until_ms = self._until_ms[group, client] = now_ms + for_ms
        if len(self._until_ms) > 2 * self._kept + 64:
            living = {key: end for key, end in self._until_ms.items() if end > now_ms}
            self._until_ms, self._kept = living, len(living)
        return max(until_ms, self._first_ms)

    def until_ms(self, group: str, client: str) -> int:
        return max(self._until_ms.get((group, client), 0), self._first_ms)


class GroupLeases:
    """Those of one group, as its queues ask for them."""

    __slots__ = ("_group", "_leases")

    def __init__(self, leases: Leases, group: str) -> None:
        self._leases = leases
        self._group = group

    def get(self, client: str, _: int) -> int:
        return self._leases.until_ms(self._group, client)


def tokens_of(client: str, attempt_id: str) -> range:
    """The tokens that the hand-outs of an attempt id may have in each queue."""
    name = blake2b(f"{client}\0{attempt_id}".encode(), digest_size=8).digest()
    first = int.from_bytes(name, "big") >> 1 & ~(TOKEN_COUNT - 1)
    return range(first, first + TOKEN_COUNT)


def free_token(queue: SharedQueue, client: str, attempt_id: str) -> int | None:
    """None: the attempt id has as many hand-outs as it may have."""
    tokens = tokens_of(client, attempt_id)
    return next((one for one in tokens if queue.hand_out(one) is None), None)


class AttemptsUnderWay:
    """The newest call for each attempt id."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str, str, str], Wish] = {}

    @contextmanager
    def made(self, wishes: Sequence[Wish]) -> Iterator[None]:
        places = {_attempt(wish): wish for wish in wishes if wish.attempt_id}
        self._newest.update(places)
        try:
            yield
        finally:
            for place, wish in places.items():
                if self._newest.get(place) is wish:
                    del self._newest[place]

    def require_newest(self, wish: Wish) -> None:
        """UnavailableError: its client has asked again, and gets the answer there."""
        if self._newest.get(_attempt(wish), wish) is not wish:
            raise UnavailableError("another call with the same attempt id has come since")


def _attempt(wish: Wish) -> tuple[str, str, str, str]:
    return wish.group, wish.topic, wish.client, wish.attempt_id
