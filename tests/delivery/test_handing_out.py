"""What happens while a hand-out waits for its messages, on a broker that is stepped by hand
(`stratamq_torture.deliveries.broker`)."""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest
from stratamq_commitlog.messages import PutMessage
from stratamq_commitlog.replica.role_change import RoleChange
from stratamq_delivery import floors, shared_queue
from stratamq_delivery import sharing as sharing_module
from stratamq_delivery.entries import HandedOut, Receipt
from stratamq_delivery.receipts import Handed, SingleMessage, encode_receipt, place_in_log
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_queue import SharedQueue
from stratamq_delivery.waiting_line import Wish
from stratamq_torture.deliveries.broker import Broker
from stratamq_torture.deliveries.service import BORN, Settings

from stratamq.errors import BusyError, NotWritableError, UnavailableError
from stratamq.files.simulated import SimulatedClock
from stratamq.formats.log_state import Role

FAR_MS = 1 << 50
PLACE = GroupPlace("billing", "orders", 0, 0)
WISH = Wish("billing", "orders", "a", 8, 30_000, 0)
ALL = ("pass", "work", "follow", "open", "send", "read", "receive")


@pytest.fixture
async def broker():
    settings = Settings("SYNC_FLUSH", 64, 1_000, 1 << 20, 1_000_000, 3, 0)
    broker = Broker("a", Role.ASYNC_MASTER, settings, random.Random(1), SimulatedClock())
    broker.start()
    run(broker)
    yield broker
    broker.kill_service()


def run(broker: Broker, *more: str) -> None:
    for step in (*ALL, *more) * 40:
        broker.act(step)


def put(broker: Broker, count: int) -> None:
    for _ in range(count):
        broker.log.put([PutMessage("orders", b"order", BORN, 0)], False, lambda _: None)
    run(broker)


async def answer(broker: Broker, call, *more: str):
    task = asyncio.ensure_future(call)
    while not task.done():
        run(broker, *more)
        await asyncio.sleep(0)
    return task.result()


def singles(handed: list[Handed]) -> list[SingleMessage]:
    return [message for one in handed for message in one.each()]


async def beginning(call) -> asyncio.Task:
    """A call that has come to where it waits."""
    task = asyncio.ensure_future(call)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_what_was_there_before_a_worker_came_is_handed_out_though_the_dispatcher_is_behind(
    broker,
):
    """The log has shown the message to the delivery, and it shows it once."""
    put(broker, 1)
    receiving = await beginning(broker.service.sharing.receive(WISH))
    (handed,) = singles(await answer(broker, receiving, "dispatch"))
    assert handed.attempt == 1


@pytest.mark.parametrize("settled", ["acknowledged", "returned"])
async def test_what_is_settled_while_it_is_read_is_not_handed_out(broker, settled):
    """A loss of power took the first hand-out of one of the messages; its worker lives."""
    put(broker, 3)
    service, queues = broker.service, broker.queues
    run(broker, "dispatch")
    offset = queues.messages["orders", 0][1][0].physical_offset
    lost = Receipt(1, 7, 1, FAR_MS, place_in_log(service.followed, offset))
    pull, may_read = queues.pull, asyncio.Event()

    async def held_up(*arguments):
        await may_read.wait()
        return await pull(*arguments)

    queues.pull = held_up
    receiving = await beginning(service.sharing.receive(WISH))
    receipts = [encode_receipt(PLACE, lost)]
    if settled == "acknowledged":
        call = service.sharing.acknowledge("billing", "orders", receipts)
    else:
        call = service.sharing.hide("billing", "orders", receipts, lambda _: 60_000, unseen=False)
    (outcome,) = await answer(broker, call)
    may_read.set()
    handed = singles(await answer(broker, receiving))
    assert (outcome.error, len(handed)) == (None, 2)
    queue = service.groups.queue(PLACE)
    assert queue.unfinished == (2 if settled == "acknowledged" else 3)
    assert isinstance(queue.held(0), tuple) and queue.held(0) == queue.held(2) != queue.held(1)


async def test_a_message_that_comes_again_has_one_attempt_more(broker):
    put(broker, 1)
    run(broker, "dispatch")
    for attempt in (1, 2, 3):
        (handed,) = singles(await answer(broker, broker.service.sharing.receive(WISH)))
        assert handed.attempt == attempt
        broker.clock.advance_ms(WISH.invisible_ms)


async def test_a_call_that_its_client_has_made_again_hands_out_nothing_any_more(broker):
    """Its client waits for the other one's answer."""
    put(broker, 8)
    run(broker, "dispatch")
    sharing, queues = broker.service.sharing, broker.queues
    wish = replace(WISH, most=2, attempt_id="again")
    pull, may_read = queues.pull, asyncio.Event()

    async def held_up(*arguments):
        await may_read.wait()
        return await pull(*arguments)

    queues.pull = held_up
    first = await beginning(sharing.receive(wish))
    second = await beginning(sharing.receive(replace(wish)))
    may_read.set()
    handed = singles(await answer(broker, second))
    with pytest.raises(UnavailableError, match="same attempt id"):
        await first
    assert len(handed) == 2 and broker.service.groups.queue(PLACE).next == 2
    again = singles(await answer(broker, sharing.receive(replace(wish))))
    assert [one.receipt for one in again] == [one.receipt for one in handed]


async def test_what_is_given_back_unseen_twice_was_tried_no_less_than_never(broker):
    put(broker, 1)
    run(broker, "dispatch")
    sharing = broker.service.sharing
    (handed,) = singles(await answer(broker, sharing.receive(WISH)))
    receipt = handed.receipt
    for _ in range(3):
        given = ("billing", "orders", [receipt], lambda _: 1_000)
        (outcome,) = await answer(broker, sharing.hide(*given, unseen=True))
        receipt = outcome.receipt
    broker.clock.advance_ms(1_000)
    (handed,) = singles(await answer(broker, sharing.receive(WISH)))
    assert handed.attempt == 1


async def test_a_group_with_too_many_unfinished_messages_is_refused_until_some_are_finished(
    broker, monkeypatch
):
    monkeypatch.setattr(shared_queue, "MAX_UNFINISHED", 3)
    put(broker, 5)
    run(broker, "dispatch")
    service = broker.service
    handed = singles(await answer(broker, service.sharing.receive(WISH)))
    assert len(handed) == 3
    with pytest.raises(BusyError):
        await answer(broker, service.sharing.receive(WISH))
    first = [handed[0].receipt]
    await answer(broker, service.sharing.acknowledge("billing", "orders", first))
    (fourth,) = singles(await answer(broker, service.sharing.receive(WISH)))
    assert fourth.attempt == 1


def test_only_what_no_worker_has_is_free():
    """By the hand-out that was read, which may be over by now."""
    queue = SharedQueue(0, {})
    queue.apply(HandedOut(((0, 2),), 7, 1, 100, "a", False))
    assert not queue.is_free(0, 7, 99) and queue.is_free(0, 7, 100)
    assert not queue.is_free(0, 8, 100) and not queue.is_free(0, 0, 100)
    assert queue.is_free(2, 0, 0) and not queue.is_free(2, 7, 0)


async def test_a_group_whose_end_was_cut_short_by_a_kill_may_be_read_again(broker, monkeypatch):
    """The log has the end of the sharing, and the dispatcher was not told."""
    monkeypatch.setattr(floors, "INTERVAL_S", 0)
    put(broker, 1)
    run(broker, "dispatch")
    await answer(broker, broker.service.sharing.receive(WISH))
    queues, share = broker.queues, broker.queues.share
    told = asyncio.Event()

    async def unheard(group, offsets, *, shared=True):
        if not shared:
            told.set()
            await asyncio.Future()
        await share(group, offsets, shared=shared)

    queues.share = unheard
    stopping = asyncio.ensure_future(broker.service.sharing.stop("billing"))
    while not told.is_set():
        run(broker)
        await asyncio.sleep(0)
    broker.kill_service()
    stopping.cancel()
    queues.share = share
    assert queues.shared == {"billing"}
    broker.start()
    for _ in range(500):
        run(broker)
        await asyncio.sleep(0)
        if not queues.shared:
            break
    assert queues.shared == set()


async def test_a_group_that_is_shared_while_the_service_starts_stays_shared(broker, monkeypatch):
    """The dispatcher is told before the state has the group."""
    monkeypatch.setattr(floors, "INTERVAL_S", 0)
    put(broker, 1)
    run(broker, "dispatch")
    queues, share = broker.queues, broker.queues.share
    shared, looks = asyncio.Event(), 0

    async def slow(group, offsets, **how):
        await share(group, offsets, **how)
        await shared.wait()

    async def looked():
        nonlocal looks
        looks += 1
        shared.set()
        return {*queues.shared}

    queues.share, queues.shared_groups = slow, looked
    await answer(broker, broker.service.sharing.receive(WISH))
    while looks < 2:
        run(broker)
        await asyncio.sleep(0)
    assert queues.shared == {"billing"}


async def test_a_queue_that_is_read_for_another_worker_is_waited_for(broker):
    """It is not empty, and who asks without waiting for messages is not told so."""
    put(broker, 4)
    run(broker, "dispatch")
    sharing, queues = broker.service.sharing, broker.queues
    pull, may_read = queues.pull, asyncio.Event()

    async def held_up(*arguments):
        await may_read.wait()
        return await pull(*arguments)

    queues.pull = held_up
    two = replace(WISH, most=2)
    first = await beginning(sharing.receive(two))
    second = await beginning(sharing.receive(replace(two, client="b")))
    may_read.set()
    for receiving in (first, second):
        assert len(singles(await answer(broker, receiving))) == 2
    assert await answer(broker, sharing.receive(two)) == []


async def waiting_workers(broker: Broker) -> list[asyncio.Task]:
    wish, receive = replace(WISH, wait_ms=30_000), broker.service.sharing.receive
    return [await beginning(receive(replace(wish, client=client))) for client in "abc"]


async def refusals_at_once(calls: list[asyncio.Task]) -> list[type]:
    for _ in range(20):
        await asyncio.sleep(0)
    assert all(one.done() for one in calls)
    return [type(one.exception()) for one in calls]


async def test_workers_that_wait_are_told_at_once_that_the_broker_is_the_master_no_more(broker):
    waiting = await waiting_workers(broker)
    term = broker.log.state.highest_term + 1
    change = RoleChange(Role.SLAVE, term=term, master="m:1")
    assert broker.ask(lambda done: broker.log.set_role(change, done)) is None
    run(broker)
    assert await refusals_at_once(waiting) == [NotWritableError] * 3


async def test_workers_that_wait_are_told_at_once_that_the_service_stops(broker):
    waiting = await waiting_workers(broker)
    broker.service.sharing.lines.close()
    assert await refusals_at_once(waiting) == [UnavailableError] * 3
    late = asyncio.ensure_future(broker.service.sharing.receive(WISH))
    assert await refusals_at_once([late]) == [UnavailableError]


async def test_workers_that_ask_together_have_hand_outs_of_their_own(broker):
    put(broker, 5)
    run(broker, "dispatch")
    wishes = [
        replace(WISH, client=name, most=most) for name, most in (("a", 2), ("b", 2), ("c", 8))
    ]
    found = await answer(broker, broker.service.sharing.receive_each(wishes))
    assert [len(singles(one)) for one in found] == [2, 2, 1]
    queue = broker.service.groups.queue(PLACE)
    assert [queue.held(offset).client for offset in range(5)] == ["a", "a", "b", "b", "c"]
    assert len({queue.held(offset).token for offset in range(5)}) == 3
    assert not any(await answer(broker, broker.service.sharing.receive_each(wishes)))


async def test_what_was_found_for_some_is_answered_though_others_are_refused(broker, monkeypatch):
    monkeypatch.setattr(shared_queue, "MAX_UNFINISHED", 3)
    put(broker, 5)
    run(broker, "dispatch")
    wishes = [replace(WISH, client="a", most=3), replace(WISH, client="b")]
    some, none = await answer(broker, broker.service.sharing.receive_each(wishes))
    assert (len(singles(some)), none) == (3, [])
    with pytest.raises(BusyError):
        await answer(broker, broker.service.sharing.receive_each(wishes))


async def test_an_answer_to_one_worker_is_bounded_in_bytes(broker, monkeypatch):
    monkeypatch.setattr(sharing_module, "ANSWER_BYTES", 100)
    for queue_id in (0, 1):
        broker.log.put([PutMessage("orders", bytes(100), BORN, queue_id)], False, lambda _: None)
    run(broker, "dispatch")
    given = [singles(await answer(broker, broker.service.sharing.receive(WISH))) for _ in range(2)]
    assert [len(one) for one in given] == [1, 1]


async def test_workers_that_pass_over_a_backlog_look_at_each_message_once_together(
    broker, monkeypatch
):
    """As those of the gateway whose filters let nothing through: one to whom nothing is left looks
    once, and waits."""
    messages, workers = 160, 40
    put(broker, messages)
    run(broker, "dispatch")
    sharing, counted = broker.service.sharing, Counter()

    def count(name: str) -> None:
        method = getattr(sharing, name)

        async def counting(*arguments):
            counted[name] += 1
            return await method(*arguments)

        monkeypatch.setattr(sharing, name, counting)

    count("_look")
    count("_hand_out")

    async def pass_over(number: int) -> None:
        wish = replace(WISH, client=str(number), wait_ms=60_000)
        while True:
            receipts = [one.receipt for one in singles(await sharing.receive(wish))]
            await sharing.acknowledge("billing", "orders", receipts)

    tasks = [asyncio.ensure_future(pass_over(number)) for number in range(workers)]
    try:
        async with asyncio.timeout(120):
            while (queue := broker.service.groups.queue(PLACE)) is None or queue.floor < messages:
                run(broker)
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert counted["_hand_out"] == messages // WISH.most
    assert counted["_look"] <= counted["_hand_out"] + 2 * workers
