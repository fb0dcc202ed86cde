# Generated from _async/routing.py by scripts/gen_sync_client.py (`make client`).
"""Which broker a message goes to."""

import logging
from collections.abc import Mapping, Sequence

from stratamq.client import operations
from stratamq.client._sync.brokers import Broker, Brokers
from stratamq.client.ordering import ordered_place
from stratamq.client.scaling import drain_of_topics
from stratamq.client.shard_routes import WRITE, ShardRoutes, of_broker
from stratamq.client.values import Topic
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.topics import DRAIN_TOPIC, Drain

log = logging.getLogger(__name__)


class Routing:
    """The routes of one client or producer. A single broker is asked nothing, but for keys."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._routes = ShardRoutes()

    def order(self, topic: str, queue_id: int | None) -> Sequence[Broker]:
        """The brokers that may take a message, in the order in which they are tried."""
        brokers = self._brokers.now()
        if len(brokers) == 1:
            return tuple(brokers.values())
        now_ns = self._learn(topic, brokers)
        if queue_id is not None:
            return [brokers[self._routes.of_queue(topic, queue_id, brokers)]]
        return [brokers[name] for name in self._routes.in_turn(topic, brokers, now_ns)]

    def slot(
        self, topic: str, key: str, queue_id: int | None, keys: Sequence[str]
    ) -> tuple[Broker, int, Sequence[str]]:
        """The broker and queue of an ordering key, and the message's keys (`ordered_place`)."""
        brokers = self._brokers.now()
        self._learn(topic, brokers)
        slots = self._routes.slots(topic, brokers)
        if not slots:
            self._routes.believe_no_longer(topic)  # it may be created before the next message
        number, keys = ordered_place(topic, key, queue_id, keys, {topic: len(slots)})
        name, queue_id = slots[number]
        return brokers[name], queue_id, keys

    def _learn(self, topic: str, brokers: Mapping[str, Broker]) -> int:
        """Ask about the topic where that is due. Returns the time."""
        routes, now_ns = self._routes, self._brokers.settings.clock.monotonic_ns()
        asked = routes.to_ask(topic, brokers, now_ns)
        patient = len(brokers) == 1 and not routes.knows(topic)  # nothing to go on with meanwhile
        found: dict[str, Topic | None] = {}
        for name in asked:
            broker = brokers[name]
            try:
                ask = broker.run if patient else broker.run_soon
                some = ask(operations.topics(topic))
                found[name] = some[0] if some else None
                if not (some and some[0].permission & WRITE):  # this topic, or all of the broker's?
                    mark = ask(operations.topics(DRAIN_TOPIC))
                    is_open = drain_of_topics(mark) is Drain.OPEN
                    (routes.drained.discard if is_open else routes.drained.add)(name)
                else:
                    routes.drained.discard(name)
            except UnavailableError as error:
                if patient:
                    raise
                self.pass_over(broker, of_broker(error, name))
        if asked or not routes.knows(topic):
            routes.learn(topic, found, now_ns)
        return now_ns

    def pass_over(self, broker: Broker, error: StrataError, *, until_back: bool = False) -> None:
        """It took nothing, and gets nothing for a while; `until_back`: until `back`."""
        now_ns = self._brokers.settings.clock.monotonic_ns()
        if self._routes.away(broker.name, now_ns, until_back=until_back) and broker.name:
            log.warning("nothing is sent there for now: %s", error.message)

    def back(self, broker: Broker) -> None:
        self._routes.back(broker.name)
