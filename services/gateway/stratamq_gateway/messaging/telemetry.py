"""Telemetry: the stream on which a client and the gateway tell each other things, and the questions
about transactions that go out on it. `spec/gateway.md` 3.9, 5.1, 7.7."""

import asyncio
from collections.abc import AsyncIterator

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.received import ReceivedMessage
from stratamq.files.port import Clock
from stratamq_gateway.messaging.messages import to_deliver
from stratamq_gateway.messaging.sending import transaction_id
from stratamq_gateway.messaging.sessions import ClientSession, Sessions


async def telemetry(
    session: ClientSession, commands: AsyncIterator[pb.TelemetryCommand], clock: Clock
) -> AsyncIterator[pb.TelemetryCommand]:
    """Until the client ends its half, or opens a newer stream. RefusedError."""
    untold = session.begin_telling()
    reading = asyncio.get_running_loop().create_task(_read(session, commands))
    reading.add_done_callback(lambda _: untold.put_nowait(None))
    try:
        while (command := await untold.get()) is not None:
            yield command
        if reading.done() and not reading.cancelled():
            reading.result()
    finally:
        session.ended(untold, clock.monotonic_ns())
        reading.cancel()


async def _read(session: ClientSession, commands: AsyncIterator[pb.TelemetryCommand]) -> None:
    """What clients answer to commands that are not given here is passed over."""
    async for command in commands:
        if command.WhichOneof("command") == "settings":
            session.tell(await session.settle(command.settings))


def ask(sessions: Sessions, topic: str, message: ReceivedMessage, number: int) -> None:
    """What became of a transaction: one of the topic's producers is asked."""
    half = to_deliver(message, pb.Resource(name=topic))
    command = pb.RecoverOrphanedTransactionCommand(
        message=half,
        transaction_id=transaction_id(message.physical_offset, half.system_properties.message_id),
    )
    producers = sessions.producers().get(topic, [])
    for turn in range(len(producers)):
        told = pb.TelemetryCommand(recover_orphaned_transaction_command=command)
        if producers[(number + turn) % len(producers)].tell(told):
            return
