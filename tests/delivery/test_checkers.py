"""Which of the connected producers is asked about a half message."""

import asyncio
import random
from contextlib import aclosing

from stratamq_delivery.checkers import Checkers
from stratamq_delivery.half_messages import Party, TransactionCheck

from stratamq.formats.source_item import MessageSource

SHOP = Party("shop", "")


def test_a_producer_that_hangs_does_not_get_every_check_of_a_message():
    """Several messages are checked one after the other, again and again."""
    for messages in range(1, 5):
        for producers in range(2, 5):
            for message, asked in asyncio.run(asked_of(producers, messages)).items():
                assert len(asked) > 1, f"message {message} of {messages}, {producers} producers"


async def asked_of(producers, messages):
    """Which producers are asked about each message in 15 rounds, after which it is given up."""
    checkers = Checkers(random.Random(1))
    asked = {message: set() for message in range(messages)}
    waiting = []

    async def answer(number):
        async with aclosing(checkers.checks([SHOP])) as checks:
            async for check in checks:
                asked[check.queue_offset].add(number)

    for number in range(producers):
        waiting.append(asyncio.create_task(answer(number)))
    await asyncio.sleep(0)
    for turn in range(1, 16):
        for message in range(messages):
            source = MessageSource(1, message)
            checkers.ask(SHOP, TransactionCheck(source, message, turn, b""))
        await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    return asked


def test_a_master_no_more_ends_every_stream_whatever_waits_in_it():
    async def ends():
        checkers = Checkers(random.Random(1))
        streams = [
            asyncio.create_task(anext(checkers.checks([SHOP, Party("shop", topic)])))
            for topic in ("orders", "audit")
        ]
        await asyncio.sleep(0)
        checkers.ask(SHOP, TransactionCheck(MessageSource(1, 7), 0, 1, b""))
        checkers.give_way()
        checkers.give_way()
        return [
            type(one) for one in await asyncio.gather(*streams, return_exceptions=True)
        ], checkers.parties()

    assert asyncio.run(ends()) == ([StopAsyncIteration] * 2, set())
