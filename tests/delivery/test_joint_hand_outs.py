"""What a client keeps of hand-outs for several workers: lost answers and cancelled workers."""

import asyncio

import pytest

from stratamq.client import connect, connect_async
from stratamq.errors import UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, Broker


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start((COMMITLOG, DISPATCHER, DELIVERY))
        with connect(broker.root) as client, client.producer() as producer:
            for number in range(12):
                producer.send("orders", b"%d" % number, queue_id=0)
        yield broker


async def _leave_half(client, readers, monkeypatch):
    """A call for two workers, of 4 messages each, has no answer; the first one asks again."""
    (one,) = (await client._brokers.all()).values()
    run = one.run

    async def lost(operation):
        await run(operation)
        raise UnavailableError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(one, "run", lost)
        await asyncio.gather(*(each.receive() for each in readers), return_exceptions=True)
    return [message.queue_offset for message in await readers[0].receive()]


@pytest.mark.parametrize(("waited_ms", "offsets"), [(1_700_000, [4, 5, 6, 7]), (1_900_000, None)])
async def test_what_a_lost_answer_left_is_given_in_the_first_half_of_its_time(
    broker, monkeypatch, waited_ms, offsets
):
    clock = SimulatedClock()
    async with connect_async(broker.root, clock=clock) as client:
        readers = [
            client.subscribe("orders", "billing", batch=4, invisible_s=3_600) for _ in range(2)
        ]
        assert await _leave_half(client, readers, monkeypatch) == [0, 1, 2, 3]
        clock.advance_ms(waited_ms)
        given = await readers[1].receive()
        if offsets:
            assert [(one.queue_offset, one.attempt) for one in given] == [(n, 1) for n in offsets]
        else:
            # It has gone back, as if no one had had it: who gets it has it for its whole time.
            async with asyncio.timeout(60):
                while not {*range(4, 8)} <= {one.queue_offset for one in given}:
                    given += await readers[1].receive()
            assert {one.attempt for one in given} == {1}
            held = await client.held_messages("billing")
            assert all(one.seconds_left > 1_800 for one in held if one.offset > 3)


async def test_what_is_left_behind_a_clients_last_reader_goes_to_others(broker, monkeypatch):
    async with connect_async(broker.root) as client:
        readers = [
            client.subscribe("orders", "billing", batch=4, invisible_s=3_600) for _ in range(2)
        ]
        await _leave_half(client, readers, monkeypatch)
        await readers[0].close()
        held = await client.held_messages("billing")
        assert [(one.offset, one.count, one.attempt) for one in held] == [(0, 8, 1)]
        await readers[1].close()
        async with connect_async(broker.root) as other:
            reader = other.subscribe("orders", "billing", batch=40)
            found = []
            async with asyncio.timeout(60):
                while len(found) < 8:
                    found += await reader.receive()
        assert sorted(one.queue_offset for one in found) == [*range(4, 12)]


async def test_what_a_cancelled_worker_was_given_goes_to_the_next_one(broker, monkeypatch):
    """It waited in a call that another worker made."""
    async with connect_async(broker.root) as client:
        readers = [
            client.subscribe("orders", "billing", batch=4, invisible_s=3_600) for _ in range(3)
        ]
        (one,) = (await client._brokers.all()).values()
        run, given, go = one.run, asyncio.Event(), asyncio.Event()

        async def held_back(operation):
            answer = await run(operation)
            given.set()
            await go.wait()
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(one, "run", held_back)
            tasks = [asyncio.ensure_future(each.receive()) for each in readers]
            async with asyncio.timeout(60):
                await given.wait()
                tasks[1].cancel()
                await asyncio.wait([tasks[1]])
                go.set()
                await asyncio.wait(tasks)
        found = tasks[0].result() + tasks[2].result() + await readers[1].receive()
        assert sorted(message.queue_offset for message in found) == [*range(12)]
        assert {message.attempt for message in found} == {1}
