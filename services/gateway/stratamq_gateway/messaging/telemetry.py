"""Telemetry: the stream on which a client and the gateway tell each other things, and the questions
about transactions that go out on it. `spec/gateway.md` 3.9, 5.1, 7.7."""

import asyncio
from collections.abc import AsyncIterator

from google.protobuf.message import DecodeError

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.client.received import ReceivedMessage
from stratamq.files.port import Clock
from stratamq_gateway.messaging.messages import to_deliver
from stratamq_gateway.messaging.sending import transaction_id
from stratamq_gateway.messaging.sessions import ClientSession, Sessions
from stratamq_gateway.messaging.statuses import RefusedError

MAX_COMMAND_BYTES = 256 << 10
"""Settings of a thousand topics."""


async def telemetry(
    session: ClientSession, commands: AsyncIterator[bytes], clock: Clock
) -> AsyncIterator[pb.TelemetryCommand]:
    """Until the client ends its half, or opens a newer stream. RefusedError."""
    untold = session.begin_telling()
    reading = asyncio.get_running_loop().create_task(_read(session, commands, untold))

    def ended(task: asyncio.Task[None]) -> None:
        untold.put_nowait(None)
        if not task.cancelled():
            task.exception()  # raised below, unless the client has gone

    reading.add_done_callback(ended)
    try:
        while (command := await untold.get()) is not None:
            yield command
            untold.task_done()
        if reading.done() and not reading.cancelled():
            reading.result()
    finally:
        session.ended(untold, clock.monotonic_ns())
        reading.cancel()


async def _read(
    session: ClientSession,
    commands: AsyncIterator[bytes],
    untold: "asyncio.Queue[pb.TelemetryCommand | None]",
) -> None:
    """What clients answer to commands that are not given here is passed over. A client that does
    not read is not read from: answers to its settings are as large as they."""
    async for data in commands:
        command = _command(data)
        if command.WhichOneof("command") == "settings":
            session.tell(await session.settle(command.settings))
            await untold.join()


def _command(data: bytes) -> pb.TelemetryCommand:
    if len(data) > MAX_COMMAND_BYTES:
        raise RefusedError(pb.BAD_REQUEST, f"a command has {MAX_COMMAND_BYTES} bytes at most")
    try:
        return pb.TelemetryCommand.FromString(data)
    except DecodeError as error:
        raise RefusedError(pb.BAD_REQUEST, f"a command that cannot be read: {error}") from error


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
