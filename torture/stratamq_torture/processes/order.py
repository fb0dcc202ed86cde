"""`stratamq torture order`: no acknowledgement leaves before the flush that covers it.

The log service runs under strace, unary and stream appends go in, one at a time and many in flight.
The trace holds every byte of its connections, so that each answer is found again in what was sent,
with the log offsets it promises, and each request in what was received. Then, for every answer:

    last byte of the request received │ sync of that segment begins … ends with 0 │ answer is sent

A sync that began before the request was there cannot have covered it, one that ended after the
answer had begun to leave was too late. (That a sync in between does cover the bytes is what the
power trial shows.) Under ASYNC_FLUSH the same look must find answers without a sync.
"""

import tempfile
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.client import Client, Delivery, connect
from stratamq.formats.file_names import offset_name
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.rooms import COMMITLOG
from stratamq_torture.processes.call_trace import (
    FLUSHING,
    RECEIVING,
    SENDING,
    Direction,
    SystemCall,
    WireMessage,
    command,
    missing,
    parse,
    wait_complete,
)
from stratamq_torture.processes.ledger import Messages
from stratamq_torture.processes.services import Services
from stratamq_torture.trial import Options, Progress, Report, Trial

SEGMENT_BYTES = 256 << 10
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """One PUT_OK on the wire: how many messages, in which segment, and between which lines of the
    trace: the request was complete at `received`, the answer began to leave at `sent`."""

    messages: int
    physical_offset: int
    received: int
    sent: int


@dataclass(slots=True)
class Trace:
    """What the trace holds: answers, and the syncs of each segment as (begun, ended), in order."""

    answers: list[Answer] = field(default_factory=list)
    syncs: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def uncovered(self, segment_bytes: int) -> list[Answer]:
        """Answers that left without a sync of their segment since their request."""
        return [answer for answer in self.answers if not self._covered(answer, segment_bytes)]

    def _covered(self, answer: Answer, segment_bytes: int) -> bool:
        offset = answer.physical_offset
        syncs = self.syncs.get(offset_name(offset - offset % segment_bytes), [])
        first = bisect_left(syncs, (answer.received,))
        return any(ended < answer.sent for _, ended in syncs[first:])


def run_order(options: Options, progress: Progress = None, flush: str = "SYNC_FLUSH") -> Report:
    """So many messages of each of the four ways; skipped where there is no strace."""
    reason = missing()
    if reason:
        return Report("order", skipped=reason)
    trial = Trial("order", options, progress)
    report = trial.report
    with tempfile.TemporaryDirectory(prefix="stratamq-order-") as directory:
        acknowledged, trace = record(trial, Path(directory), flush)
    report.acknowledged_messages = acknowledged
    uncovered = trace.uncovered(SEGMENT_BYTES)
    seen = sum(answer.messages for answer in trace.answers)
    if seen != acknowledged:
        report.failures.append(
            f"the client has {acknowledged} acknowledgements, the trace {seen}: it misses calls"
        )
    report.failures += [
        f"{answer.messages} messages at log offset {answer.physical_offset} were acknowledged at "
        f"line {answer.sent} of the trace, received at line {answer.received}, with no sync of "
        f"their segment in between"
        for answer in uncovered[:SHOWN]
    ]
    if uncovered:
        report.failures.append(
            f"{len(uncovered)} of {len(trace.answers)} answers left too early; again: "
            f"stratamq torture order --messages {options.count} --seed {options.seed}"
        )
    syncs = sum(len(each) for each in trace.syncs.values())
    report.notes.append(
        f"{len(trace.answers)} answers for {seen} messages, {syncs} syncs of "
        f"{len(trace.syncs)} segments: each answer behind a sync that began after its request"
        if not report.failures
        else f"{len(trace.answers)} answers, {syncs} syncs"
    )
    return trial.ended()


def record(trial: Trial, directory: Path, flush: str) -> tuple[int, Trace]:
    """Run the log service traced; how many messages it acknowledged, and the trace."""
    options, output = trial.options, directory / "trace"
    settings = (
        f"commitlog.segment_bytes={SEGMENT_BYTES}",
        f"commitlog.flush_disk_type={flush}",
        "commitlog.flush_interval_ms=1000",
        "commitlog.followers=",
    )
    root = directory / "store"
    prefixes = {COMMITLOG: command(output)}
    acknowledged = 0
    with Services(root, directory / "logs", settings, prefixes) as services:
        services.start([COMMITLOG])
        for number, way in enumerate(WAYS):
            # A client, and so a connection, for each way; by TCP, as which the trace knows them.
            with connect(f"{COMMITLOG}={Endpoints(root).listening(COMMITLOG)}") as client:
                acknowledged += way(client, Messages(options.seed), number, options.count)
            trial.count(options.count)
        pid = services.pid(COMMITLOG)
        services.stop()
    wait_complete(output, pid)
    with output.open(encoding="latin-1") as lines:
        return acknowledged, read_trace(parse(lines))


# --- the four ways ---


def unary_one_at_a_time(client: Client, messages: Messages, number: int, count: int) -> int:
    for index in range(count):
        client.send_message(messages.message(number, index))
    return count


def unary_many_in_flight(client: Client, messages: Messages, number: int, count: int) -> int:
    with client.producer() as producer:
        return _results(
            [
                producer.send_message(messages.message(number, index), alone=True)
                for index in range(count)
            ]
        )


def stream_one_at_a_time(client: Client, messages: Messages, number: int, count: int) -> int:
    with client.producer(linger_ms=0) as producer:
        for index in range(count):
            producer.send_message(messages.message(number, index)).result()
    return count


def stream_many_in_flight(client: Client, messages: Messages, number: int, count: int) -> int:
    with client.producer(linger_ms=0, batch_messages=4) as producer:
        return _results(
            [producer.send_message(messages.message(number, index)) for index in range(count)]
        )


WAYS = (unary_one_at_a_time, unary_many_in_flight, stream_one_at_a_time, stream_many_in_flight)


def _results(deliveries: Iterable[Delivery]) -> int:
    return sum(delivery.result(60).stored for delivery in deliveries)


# --- from system calls to answers ---


def read_trace(calls: Iterable[SystemCall]) -> Trace:
    """Requests, answers and syncs of the log service, put together."""
    trace = Trace()
    connections: dict[str, _Connection] = defaultdict(_Connection)
    for call in calls:
        if call.name in FLUSHING and call.result == 0:
            path = Path(call.target)
            if path.parent.name == "commitlog":
                trace.syncs[path.name].append((call.begun, call.ended))
        elif call.target.startswith("TCP") and call.data:
            connection = connections[call.target]
            if call.name in RECEIVING:
                connection.received(call)
            elif call.name in SENDING:
                trace.answers += connection.sent(call)
    for syncs in trace.syncs.values():
        syncs.sort()
    return trace


class _Connection:
    """Both directions of one TCP connection."""

    def __init__(self) -> None:
        self._in, self._out = Direction(), Direction()
        self._streams: dict[int, _Calls] = {}

    def received(self, call: SystemCall) -> None:
        for message in self._in.feed(call.data, call.ended):
            calls = self._streams.setdefault(message.stream, _Calls())
            calls.request(message)

    def sent(self, call: SystemCall) -> list[Answer]:
        answers = []
        for message in self._out.feed(call.data, call.begun):
            calls = self._streams.get(message.stream)
            if calls is not None:
                answers += calls.answers(message)
        return answers


class _Calls:
    """One HTTP/2 stream: an append call, an append stream, or something else."""

    def __init__(self) -> None:
        self._unary: int | None = None
        """Where the request of an append call was complete."""
        self._batches: dict[int, tuple[int, int]] | None = None
        """For an append stream: sequence to (messages, where the request was complete)."""

    def request(self, message: WireMessage) -> None:
        if self._batches is not None:
            head, _ = APPEND_STREAM_REQUEST.decode(message.content)
            self._batches[head.sequence] = (sum(run.count for run in head.runs), message.ended)
        elif _is_opening(message.content):
            self._batches = {}
        elif _is_append(message.content):
            self._unary = message.ended

    def answers(self, message: WireMessage) -> list[Answer]:
        if self._unary is not None:
            appended = pb.AppendResponse.FromString(message.content)
            return [
                Answer(1, result.physical_offset, self._unary, message.begun)
                for result in appended.results
                if result.status == common_pb2.PUT_MESSAGE_STATUS_PUT_OK
            ]
        if self._batches is None:
            return []
        streamed = pb.AppendStreamResponse.FromString(message.content)
        return [
            Answer(count, result.physical_offset, received, message.begun)
            for result in streamed.results
            if result.status == common_pb2.PUT_MESSAGE_STATUS_PUT_OK
            for count, received in (self._batches[result.sequence],)
        ]


def _is_opening(content: bytes) -> bool:
    """`open` alone is what its own serialisation gives. The trial's clients have no name, which is
    where an append has its topic."""
    try:
        opening = pb.AppendStreamRequest.FromString(content).open
    except DecodeError:
        return False
    alone = pb.AppendStreamRequest(open=opening).SerializeToString()
    return content == alone and not opening.client_name


def _is_append(content: bytes) -> bool:
    """A unary append holds messages with topics; the questions of a client are empty or texts."""
    try:
        request = pb.AppendRequest.FromString(content)
    except DecodeError:
        return False
    return bool(request.messages) and all(message.topic for message in request.messages)
