"""Where the messages of a topic go when brokers of several names take them. No I/O.

A slot is a queue of the topic at a broker. Messages without a place take the brokers in turn, each
as often as it has queues; a key chooses a slot by its hash among all of them, by broker name and
queue number, so that it keeps its slot as long as the brokers' queues stay, whether they answer or
not.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from stratamq.client.values import Topic
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.formats.javahash import queue_of_key
from stratamq.formats.topics import PERMISSION_WRITE

FRESH_NS = 30_000_000_000
"""So long a topic's queues are believed."""
AWAY_NS = 5_000_000_000
"""So long nothing is sent to a broker that took nothing, unless a key chooses it."""
_NEVER_NS = 1 << 62
"""Later than any clock shows."""


@dataclass(slots=True)
class _Route:
    asked_ns: int
    counts: dict[str, int] = field(default_factory=dict)
    """Queues for writing by broker, 0 where it has none. What is missing has not answered."""
    exists: dict[str, int] = field(default_factory=dict)
    """The same for the brokers that have the topic, whether it can be written there or not."""
    turn: int = 0
    cycle: list[str] = field(default_factory=list)
    """The brokers as often as they have queues; of `brokers`, and empty when that is to be made."""
    brokers: Collection[str] = ()
    orders: dict[str, list[str]] = field(default_factory=dict)
    """All that take messages, by the one that is first."""
    slots: list[tuple[str, int]] = field(default_factory=list)
    """(broker, queue id), for keys."""


class ShardRoutes:
    """What one client or producer knows of its brokers' topics and queues."""

    def __init__(self) -> None:
        self._routes: dict[str, _Route] = {}
        self._away_ns: dict[str, int] = {}
        self.drained: set[str] = set()
        """Brokers at which no topic is made."""

    def knows(self, topic: str) -> bool:
        return topic in self._routes

    def to_ask(self, topic: str, brokers: Collection[str], now_ns: int) -> list[str]:
        """Those that are to be asked about the topic, then `learn`. One that is away is not, so
        that it costs the others' messages no time."""
        route = self._routes.get(topic)
        fresh = route is not None and now_ns - route.asked_ns <= FRESH_NS
        if route is not None and fresh and len(route.counts) >= len(brokers):
            return []
        here = [name for name in brokers if not self._is_away(name, now_ns)]
        if route is None or not fresh:
            return here
        return [name for name in here if name not in route.counts]

    def _is_away(self, broker: str, now_ns: int) -> bool:
        since_ns = self._away_ns.get(broker)
        return since_ns is not None and now_ns - since_ns < AWAY_NS

    def learn(self, topic: str, answers: Mapping[str, Topic | None], now_ns: int) -> None:
        """What each broker that answered has; None: no such topic. Those that did not keep what was
        known of them."""
        route = self._routes.setdefault(topic, _Route(now_ns))
        route.asked_ns = now_ns
        route.cycle = []
        for name, one in answers.items():
            writable = one is not None and one.permission & PERMISSION_WRITE
            route.counts[name] = one.write_queue_count if one is not None and writable else 0
            route.exists.pop(name, None)
            if one is not None:
                route.exists[name] = one.write_queue_count

    def expire(self, topic: str) -> None:
        """Have all brokers asked about the topic again."""
        self._routes[topic].asked_ns = -_NEVER_NS

    def away(self, broker: str, now_ns: int, *, until_back: bool = False) -> bool:
        """It took nothing; `until_back`: nor will it before `back`. True when that is new."""
        new = broker not in self._away_ns
        self._away_ns[broker] = _NEVER_NS if until_back else now_ns
        return new

    def back(self, broker: str) -> None:
        self._away_ns.pop(broker, None)

    def in_turn(self, topic: str, brokers: Collection[str], now_ns: int) -> list[str]:
        """The brokers that may take a message, in the order in which they are tried. A topic that
        is nowhere may be made anywhere; one that can be written nowhere is refused by who has it.
        """
        route = self._routes[topic]
        self._plan(route, brokers)
        cycle = route.cycle
        order = route.orders[cycle[route.turn % len(cycle)]]
        route.turn += 1
        if not self._away_ns:
            return order
        gone = {name for name in order if self._is_away(name, now_ns)}
        return [*(one for one in order if one not in gone), *(one for one in order if one in gone)]

    def takers(self, topic: str, brokers: Collection[str]) -> list[str]:
        """The brokers that may take a message, by name."""
        route = self._routes[topic]
        self._plan(route, brokers)
        return sorted(route.orders)

    def of_queue(self, topic: str, queue_id: int, brokers: Collection[str]) -> str:
        """The one broker that has this queue. InvalidRequestError when several have, or none of
        several."""
        if len(brokers) == 1:
            return next(iter(brokers))
        counts = self._routes[topic].counts
        found = sorted(name for name, count in list(counts.items()) if queue_id < count)
        if len(found) == 1:
            return found[0]
        where = f"on several brokers ({', '.join(found)})" if found else "on none of the brokers"
        raise InvalidRequestError(
            f"queue {queue_id} of {topic} is {where}: choose one, connect(..., broker=NAME) or "
            "--broker NAME"
        )

    def slots(self, topic: str, brokers: Collection[str]) -> list[tuple[str, int]]:
        """All (broker, queue id), for keys; of a topic that is writable nowhere those where it is.
        UnavailableError while the queues of one are not known: the key's slot is not known then,
        either."""
        route = self._routes[topic]
        missing = sorted(name for name in brokers if name not in route.counts)
        if missing:
            raise UnavailableError(
                f"a key chooses among the queues of {topic} at all brokers, and those at "
                f"{', '.join(missing) or 'the broker'} are not known: it has not answered yet"
            )
        self._plan(route, brokers)
        return route.slots

    def _plan(self, route: _Route, brokers: Collection[str]) -> None:
        if not route.cycle or len(route.brokers) != len(brokers):
            _plan_turns(route, brokers, self.drained)


def _plan_turns(route: _Route, brokers: Collection[str], drained: Collection[str]) -> None:
    places = [
        (number, name) for name in sorted(brokers) for number in range(route.counts.get(name, 0))
    ]
    cycle = [name for _, name in sorted(places)]
    cycle = cycle or sorted(route.exists.keys() & set(brokers) - set(drained))
    cycle = cycle or sorted(set(brokers) - set(drained)) or sorted(brokers)
    names = list(dict.fromkeys(cycle))
    writable = route.counts if any(route.counts.values()) else route.exists
    route.slots = [(name, at) for name in sorted(brokers) for at in range(writable.get(name, 0))]
    route.orders = {name: names[at:] + names[:at] for at, name in enumerate(names)}
    route.brokers = tuple(brokers)
    route.cycle = cycle


def ordered_place(
    topic: str,
    ordering_key: str,
    queue_id: int | None,
    keys: Sequence[str],
    queue_count: int,
) -> tuple[int, Sequence[str]]:
    """The queue, as RocketMQ's SelectMessageQueueByHash takes it, and the message's keys with the
    ordering key before the others.

    The same key has the same queue as long as the topic's number of queues stays.
    InvalidRequestError beside a queue, or for a key that is no word; NotFoundError when the topic
    is not there, whose queues are not known then.
    """
    if queue_id is not None:
        raise InvalidRequestError("queue_id and ordering_key both choose the queue: give one")
    if not isinstance(ordering_key, str) or not ordering_key or " " in ordering_key:
        raise InvalidRequestError(
            f"an ordering key is a word without spaces: {ordering_key!r:.200}"
        )
    if not queue_count:
        raise NotFoundError(
            f"there is no topic {topic} to whose queues an ordering key could lead: create it first"
        )
    others = (keys,) if isinstance(keys, str) else keys
    queue = queue_of_key(ordering_key, queue_count)
    return queue, (ordering_key, *(one for one in others if one != ordering_key))


def took_nothing(error: StrataError) -> bool:
    """Another broker may be given the message: nothing of it is stored at this one."""
    return isinstance(error, UnavailableError) and not error.fields.get("perhaps_stored")


def of_broker(error: StrataError, broker: str) -> StrataError:
    """The error with the name of the broker that it is about, "" if there is only one."""
    if broker and error.fields.get("broker") != broker:
        error.fields["broker"] = broker
        error.message = f"broker {broker}: {error.message}"
    return error
