"""Calls of RocketMQ 5's gRPC protocol, as its clients make them."""

import itertools
import threading

import grpc

from stratamq.api.rocketmq import messaging_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["MessagingService"]
DEADLINE_S = 60
_ids = itertools.count(1)


class Client:
    """Calls as one client makes them."""

    def __init__(self, channel: grpc.Channel, name: str | None = None, **metadata: str) -> None:
        self._channel = channel
        self.name = f"client@{next(_ids)}" if name is None else name
        self._metadata = [("x-mq-client-id", self.name), *metadata.items()]

    def call(self, method: str, request, deadline_s: float = DEADLINE_S):
        of = SERVICE.methods_by_name[method]
        response = getattr(pb, of.output_type.name)
        kind = self._channel.unary_stream if of.server_streaming else self._channel.unary_unary
        stub = kind(f"/{SERVICE.full_name}/{method}", None, response.FromString)
        data = request if isinstance(request, bytes) else request.SerializeToString()
        answer = stub(data, timeout=deadline_s, metadata=self._metadata)
        return list(answer) if of.server_streaming else answer

    def telemetry(self, settings: pb.Settings):
        """The answer to the settings, then what the client is told; and what ends its half."""
        ended = threading.Event()

        def commands():
            yield pb.TelemetryCommand(settings=settings)
            ended.wait(DEADLINE_S)

        stub = self._channel.stream_stream(
            f"/{SERVICE.full_name}/Telemetry",
            pb.TelemetryCommand.SerializeToString,
            pb.TelemetryCommand.FromString,
        )
        return stub(commands(), timeout=DEADLINE_S, metadata=self._metadata), ended

    def send(self, *messages: pb.Message) -> pb.SendMessageResponse:
        return self.call("SendMessage", pb.SendMessageRequest(messages=messages))

    def receive(
        self, topic: str, group: str, wait_s: float = 20, tags: str = "*", **fields
    ) -> list[pb.Message]:
        status, *messages, end = self.receive_raw(topic, group, wait_s, tags, **fields)
        assert status.status.code in (pb.OK, pb.MESSAGE_NOT_FOUND), status
        assert end.WhichOneof("content") == "delivery_timestamp"
        return [one.message for one in messages]

    def receive_until(self, body: bytes, topic: str, group: str, **fields) -> list[pb.Message]:
        """All that came until this one did: a message is there once it is dispatched."""
        found: list[pb.Message] = []
        while body not in [one.body for one in found]:
            found += self.receive(topic, group, **fields)
        return found

    def receive_raw(
        self, topic, group, wait_s=20, tags="*", sql="", invisible_s=30, batch=32, **fields
    ):
        expression = pb.FilterExpression(type=pb.TAG, expression=tags)
        if sql:
            expression = pb.FilterExpression(type=pb.SQL, expression=sql)
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group),
            message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), id=-1),
            filter_expression=expression,
            batch_size=batch,
            **fields,
        )
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
        request.invisible_duration.FromMilliseconds(int(invisible_s * 1000))
        return self.call("ReceiveMessage", request, wait_s + DEADLINE_S)

    def pull_raw(
        self, topic: str, group: str, offset: int, wait_s: float = 0, queue_id: int = 0, **fields
    ) -> list[pb.PullMessageResponse]:
        request = pb.PullMessageRequest(
            group=pb.Resource(name=group),
            message_queue=queue_of(topic, queue_id),
            offset=offset,
            **fields,
        )
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
        return self.call("PullMessage", request, wait_s + DEADLINE_S)

    def pull(self, *args, **fields) -> tuple[str, list[pb.Message], int]:
        """The status, messages, and where the next pull begins."""
        status, *messages, end = self.pull_raw(*args, **fields)
        assert end.WhichOneof("content") == "next_offset", end
        return code(status), [one.message for one in messages], end.next_offset

    def ack(self, topic: str, group: str, *messages: pb.Message) -> pb.AckMessageResponse:
        entries = [
            pb.AckMessageEntry(
                message_id=one.system_properties.message_id,
                receipt_handle=one.system_properties.receipt_handle,
            )
            for one in messages
        ]
        request = pb.AckMessageRequest(
            group=pb.Resource(name=group), topic=pb.Resource(name=topic), entries=entries
        )
        return self.call("AckMessage", request)

    def hide(self, topic: str, group: str, handle: str, for_s: float):
        request = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=group), topic=pb.Resource(name=topic), receipt_handle=handle
        )
        request.invisible_duration.FromMilliseconds(int(for_s * 1000))
        return self.call("ChangeInvisibleDuration", request)

    def recall(self, handle: str, topic: str = "later") -> pb.RecallMessageResponse:
        request = pb.RecallMessageRequest(topic=pb.Resource(name=topic), recall_handle=handle)
        return self.call("RecallMessage", request)

    def end(self, topic: str, transaction_id: str, resolution: pb.TransactionResolution):
        return self.call(
            "EndTransaction",
            pb.EndTransactionRequest(
                topic=pb.Resource(name=topic),
                transaction_id=transaction_id,
                resolution=resolution,
                source=pb.SOURCE_CLIENT,
            ),
        )


def message(topic: str, body: bytes = b"x", properties=None, **system) -> pb.Message:
    system.setdefault("message_id", f"01{next(_ids):032X}")
    system.setdefault("body_encoding", pb.IDENTITY)
    system.setdefault("message_type", pb.NORMAL)
    made = pb.Message(
        topic=pb.Resource(name=topic), body=body, system_properties=pb.SystemProperties(**system)
    )
    made.user_properties.update(properties or {})
    made.system_properties.born_timestamp.FromMilliseconds(1_795_000_000_123)
    return made


def queue_of(topic: str, queue_id: int = 0, broker: str = "") -> pb.MessageQueue:
    named = pb.Broker(name=broker)
    return pb.MessageQueue(topic=pb.Resource(name=topic), id=queue_id, broker=named)


def later(client: Client, topic: str = "later", ahead_ms: int = 3_000, **fields):
    """The answer to a message that is due so much later."""
    sent = message(topic, b"late", **fields)
    timestamp = sent.system_properties.delivery_timestamp
    timestamp.GetCurrentTime()
    timestamp.FromMilliseconds(timestamp.ToMilliseconds() + ahead_ms)
    (entry,) = client.send(sent).entries
    return entry


def handle_of(found: pb.Message) -> str:
    return found.system_properties.receipt_handle


def code(response) -> str:
    return pb.Code.Name(response.status.code)
