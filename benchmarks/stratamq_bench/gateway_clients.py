"""Consumers of RocketMQ 5's gRPC protocol that wait: each has a connection, a Telemetry stream, a
receive that is held, and a heartbeat every 10 s.

Each function is a process of its own (`child.py`).
"""

import asyncio
import json
import sys

import grpc

from stratamq.api.rocketmq import messaging_pb2 as pb

SERVICE = "apache.rocketmq.v2.MessagingService"
GROUP, TOPIC = "idle", "bench"
HEARTBEAT_S, HELD_S = 10.0, 20


class _Consumer:
    def __init__(self, address: str, number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(address, options)
        self._metadata = (("x-mq-client-id", f"idle@{number}"),)
        self._group, self._topic = pb.Resource(name=GROUP), pb.Resource(name=TOPIC)

    async def run(self, begun: "asyncio.Queue[None]") -> None:
        """Until cancelled."""
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.CopyFrom(self._group)
        method = f"/{SERVICE}/Telemetry"
        telemetry = self._channel.stream_stream(method, None, pb.TelemetryCommand.FromString)
        stream = telemetry(metadata=self._metadata)
        await stream.write(pb.TelemetryCommand(settings=settings).SerializeToString())
        await stream.read()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat())
            tasks.create_task(self._receive(begun))

    async def _beat(self) -> None:
        heartbeat = pb.HeartbeatRequest(client_type=pb.SIMPLE_CONSUMER, group=self._group)
        call = self._channel.unary_unary(
            f"/{SERVICE}/Heartbeat", None, pb.HeartbeatResponse.FromString
        )
        while True:
            await call(heartbeat.SerializeToString(), metadata=self._metadata)
            await asyncio.sleep(HEARTBEAT_S)

    async def _receive(self, begun: "asyncio.Queue[None]") -> None:
        queue = pb.MessageQueue(topic=self._topic, id=-1)
        request = pb.ReceiveMessageRequest(group=self._group, message_queue=queue, batch_size=32)
        request.filter_expression.expression = "no-message-has-this-tag"
        request.invisible_duration.FromSeconds(30)
        request.long_polling_timeout.FromSeconds(HELD_S)
        method = f"/{SERVICE}/ReceiveMessage"
        call = self._channel.unary_stream(method, None, pb.ReceiveMessageResponse.FromString)
        begun.put_nowait(None)
        while True:
            answers = call(request.SerializeToString(), metadata=self._metadata)
            async for _ in answers:
                pass


async def hold(address: str, clients: int) -> dict[str, int]:
    """A line when all of them wait; until a line comes."""
    begun: asyncio.Queue[None] = asyncio.Queue()
    consumers = [_Consumer(address, number) for number in range(clients)]
    tasks = [asyncio.ensure_future(one.run(begun)) for one in consumers]
    for _ in range(clients):
        await begun.get()
    print(json.dumps({"begun": clients}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    held = sum(not one.done() for one in tasks)
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"held": held}
