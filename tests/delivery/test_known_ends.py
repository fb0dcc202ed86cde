"""What the log is told of the queues that workers of shared groups wait for."""

import pytest
from stratamq_delivery.known_ends import KnownEnds

from stratamq.follow.demand import Demand
from tests.follow.test_demand import Sees

ORDERS = {("orders", 0), ("orders", 1)}


@pytest.fixture
def demand():
    return Demand()


@pytest.fixture
def ends(demand):
    ends = KnownEnds(demand)
    for topic in ("orders", "others"):
        ends.watch(topic)
        ends.learn(topic, [(0, 5), (1, 7)])
    return ends


async def test_the_log_hurries_with_the_queues_that_workers_wait_for(demand, ends):
    log = Sees(demand)
    assert log.hears().queues == set()
    for _ in range(2):
        ends.begin_waiting("orders")
    assert log.hears().queues == ORDERS
    ends.end_waiting("orders")
    assert log.hears().queues == ORDERS
    ends.end_waiting("orders")
    assert log.hears().queues == set()
    assert not log.everything


async def test_a_queue_that_a_waited_topic_gets_is_waited_for(demand, ends):
    ends.begin_waiting("orders")
    ends.learn("orders", [(2, 1)])
    ends.begin_waiting("new")
    ends.watch("new")
    ends.learn("new", [(0, 1)])
    assert Sees(demand).hears().queues == ORDERS | {("orders", 2), ("new", 0)}


async def test_a_log_that_was_cut_hurries_with_what_is_known_of_it(demand, ends):
    log = Sees(demand)
    ends.begin_waiting("orders")
    assert log.hears().queues == ORDERS
    ends.forget()
    ends.watch("orders")
    ends.learn("orders", [(0, 1)])
    assert log.hears().queues == {("orders", 0)}
    ends.end_waiting("orders")
    assert log.hears().queues == set()
