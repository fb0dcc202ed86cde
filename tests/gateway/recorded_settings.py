"""A proxy of gRPC calls that keeps what clients ask for, and are told, about their settings."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from stratamq.api.rocketmq import messaging_pb2 as pb

THREADS = 64
LONGEST_S = 3_600
"""For a call without a deadline: what gRPC says of it is more than a call may be given."""
PASSED = ("x-mq-", "authorization")


class Answered(NamedTuple):
    asked: pb.Settings
    given: pb.TelemetryCommand


class _Proxy(grpc.GenericRpcHandler):
    def __init__(self, channel: grpc.Channel, answered: list[Answered]) -> None:
        self._channel = channel
        self._answered = answered

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Every method as one with streams both ways: their messages are bytes."""
        passed = [one for one in details.invocation_metadata if one[0].startswith(PASSED)]
        call = self._channel.stream_stream(details.method)
        records = details.method.endswith("/Telemetry")

        def serve(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            asked: list[pb.Settings] = []

            def given() -> Iterator[bytes]:
                for data in requests:
                    command = pb.TelemetryCommand.FromString(data) if records else None
                    if command is not None and command.HasField("settings"):
                        asked.append(command.settings)
                    yield data

            left_s = min(context.time_remaining() or LONGEST_S, LONGEST_S)
            answers = call(given(), timeout=left_s, metadata=passed)
            context.add_callback(answers.cancel)
            try:
                for data in answers:
                    command = pb.TelemetryCommand.FromString(data) if records else None
                    if command is not None and command.HasField("settings"):
                        self._answered.append(Answered(asked.pop(0), command))
                    yield data
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return grpc.stream_stream_rpc_method_handler(serve)


@contextmanager
def recording(address: str) -> Iterator[tuple[str, list[Answered]]]:
    """The proxy's address, and what was answered so far."""
    answered: list[Answered] = []
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(THREADS) as threads:
        server = grpc.server(threads, handlers=[_Proxy(channel, answered)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}", answered
        finally:
            server.stop(0).wait()
