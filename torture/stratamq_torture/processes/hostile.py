"""`stratamq torture hostile`: peers that send what is nearly right, beside an honest client.

Messages of the replication port (openings, reports, peer statuses, requests for documents) and
batches of append streams are made as ours are, then torn: bytes changed, cut, doubled, put in
another order, lengths replaced. In the end every process is the one it was, has grown no further
than GROWTH_BYTES, the honest client's messages are in the log once each, and of the torn batches
those that were acknowledged.
"""

import contextlib
import random
import socket
import tempfile
from pathlib import Path
from queue import SimpleQueue

import grpc

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import common_pb2
from stratamq.client import Client, connect
from stratamq.client.received import split_frames
from stratamq.errors import StrataError
from stratamq.formats.batch_frames import BatchEncoder
from stratamq.formats.frame_scan import scan_frames
from stratamq.formats.replication import REPORT
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_metadata import METADATA_MARK
from stratamq.formats.replication_opening import BACK_MARK, MARK, SlaveOpening, encode_slave_opening
from stratamq.formats.replication_peers import PEER_MARK
from stratamq.rpc.address import split_address
from stratamq.rpc.appending import shape_of
from stratamq.rpc.framing import APPEND_STREAM_REQUEST
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, HA
from stratamq_torture.processes.services import Services, until
from stratamq_torture.trial import Options, Progress, Report, Trial, TrialFailedError

SEGMENT_BYTES = 1 << 22
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT_BYTES}",
    "commitlog.followers=",
    "commitlog.reserve_bytes=0",
    "ha.replication_address=127.0.0.1:0",
)
ROOMS = (COMMITLOG, HA)
HONEST, TORN, ENVELOPED = "honest", "torn", "enveloped"
GROWTH_BYTES = 128 << 20
AT_ONCE = 64
"""Messages of one connection to the replication port, and batches of a stream between answers."""
STREAM_BATCHES = 4_096
ANSWER_S = 60.0
OK = common_pb2.PUT_MESSAGE_STATUS_PUT_OK


def torn(data: bytes, chance: random.Random) -> bytes:
    """What is nearly `data`."""
    found = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(found)) if found else 0
        act = chance.randrange(6)
        if act == 0:
            found[at : at + 1] = bytes([chance.randrange(256)])
        elif act == 1:
            found[at : at + 4] = chance.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF)).to_bytes(4, "big")
        elif act == 2:
            del found[at:]
        elif act == 3:
            found[at:at] = found[at : at + chance.randrange(64)]
        elif act == 4:
            del found[at : at + chance.randrange(1, 32)]
        else:
            found[at : at + 8] = chance.randbytes(8)
    return bytes(found)


def run_hostile(options: Options, progress: Progress = None) -> Report:
    """The trial. The machine decides what arrives together."""
    trial = Trial("hostile", options, progress)
    with tempfile.TemporaryDirectory(prefix="stratamq-hostile-") as directory:
        try:
            _play(trial, Path(directory))
        except (TrialFailedError, StrataError, OSError) as error:
            trial.report.failures.append(f"{type(error).__name__}: {error}")
    trial.report.rounds = trial.done
    if trial.report.failures:
        trial.report.failures.append(
            f"again: stratamq torture hostile --seed {options.seed} --messages {trial.done + 1}"
        )
    trial.report.notes.append(trial.summary)
    return trial.ended()


def _play(trial: Trial, directory: Path) -> None:
    root = directory / "store"
    with contextlib.ExitStack() as stack:
        services = stack.enter_context(Services(root, directory / "logs", SETTINGS))
        services.start(ROOMS)
        client = stack.enter_context(connect(root, retry_timeout_s=ANSWER_S))
        honest = [client.send(HONEST, b"0", queue_id=0).physical_offset]
        before = {room: (services.pid(room), resident_bytes(services.pid(room))) for room in ROOMS}
        replication = _Replication(services, client, trial.chance)
        appends = _Appends(services, trial.chance)
        while trial.in_time and trial.done < trial.options.count:
            for name, attack in (("replication", replication.attack), ("append", appends.attack)):
                # Half to each, however many messages a connection takes.
                while trial.met[name] <= trial.done // 2:
                    sent = attack()
                    trial.met[name] += sent
                    trial.count(sent)
            honest.append(client.send(HONEST, b"%d" % len(honest), queue_id=0).physical_offset)
        acknowledged = appends.close()
        for room, (pid, bytes_before) in before.items():
            if services.ended(room) or services.pid(room) != pid:
                raise services.failed(room, "ended")
            grown = resident_bytes(pid) - bytes_before
            trial.met[f"MiB that {room} has grown by"] = grown >> 20
            if grown > GROWTH_BYTES:
                trial.report.failures.append(f"{room} has grown by {grown} bytes")
        _compare(trial, client, honest, acknowledged)


def _compare(trial: Trial, client: Client, honest: list[int], acknowledged: int) -> None:
    """The whole log with what was acknowledged."""
    places: dict[bytes, list[int]] = {}
    others = 0
    for _, frames in client.log_frames(0):
        for message in split_frames(frames[: scan_frames(frames).end]):
            if message.topic == HONEST:
                places.setdefault(message.body, []).append(message.physical_offset)
            elif message.topic != ENVELOPED:
                others += 1
    trial.report.acknowledged_messages = len(honest) + acknowledged
    for number, offset in enumerate(honest):
        found = places.pop(b"%d" % number, [])
        if found != [offset]:
            trial.report.lost += not found
            trial.report.failures.append(f"message {number}, stored at {offset}, is at {found}")
    if places:
        trial.report.failures.append(f"{len(places)} messages were never sent by the honest client")
    if others != acknowledged:
        trial.report.lost += max(0, acknowledged - others)
        trial.report.failures.append(f"{others} torn messages in the log, {acknowledged} promised")


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise TrialFailedError(f"process {pid} is gone")


class _Replication:
    """A connection for each attack."""

    def __init__(self, services: Services, client: Client, chance: random.Random) -> None:
        announcement = "slaves connect here address="
        if not until(lambda: announcement in services.output(HA), ANSWER_S):
            raise services.failed(HA, "does not take slaves")
        self._where = split_address(services.output(HA).rpartition(announcement)[2].split()[0])
        self._chance = chance
        state = client.log_state()
        end = state.appended_offset
        # Not this log's: a slave that claims more of it than there is holds up its master, as it
        # is to, and without TLS every client may claim that.
        history = [(state.generation ^ 1, 0)]
        opening = encode_slave_opening(
            SlaveOpening(end, 0, SEGMENT_BYTES, state.broker_name, history, identity=7)
        )
        reports = b"".join(REPORT.pack(offset) for offset in (0, end, end, end // 2))
        self._said = (
            (MARK + opening, REPORT.pack(end), reports),
            (REPORT.pack(0), REPORT.pack(end), reports),
            (METADATA_MARK + LENGTH.pack(40) + bytes(40),),
            (PEER_MARK + LENGTH.pack(120) + bytes(120),),
            (BACK_MARK + opening,),
        )

    def attack(self) -> int:
        """How many messages were sent."""
        chance, sent = self._chance, 0
        messages = chance.choice(self._said) + (REPORT.pack(0),) * chance.choice((0, AT_ONCE))
        with contextlib.suppress(OSError), socket.create_connection(self._where, ANSWER_S) as peer:
            for message in messages:
                peer.sendall(torn(message, chance))
                sent += 1
            if chance.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
            peer.settimeout(chance.choice((0.0, 0.001)))
            peer.recv(1 << 16)
        return max(1, sent)


class _Appends:
    """One stream after the other."""

    def __init__(self, services: Services, chance: random.Random) -> None:
        self._channel = grpc.insecure_channel(services.wait_announced(COMMITLOG).address)
        self._chance = chance
        self._acknowledged = 0
        self._stream = _Stream(self._channel)

    def attack(self) -> int:
        """How many batches were sent."""
        if self._stream.sent >= STREAM_BATCHES:
            self._stream.end()
            self._stream = _Stream(self._channel)
        self._acknowledged += self._stream.batches(AT_ONCE, self._chance)
        if self._chance.random() < 0.1:
            self._broken_envelope()
        return AT_ONCE

    def _broken_envelope(self) -> None:
        """It ends its stream; what of it was stored is not acknowledged."""
        stream = _Stream(self._channel)
        with contextlib.suppress(grpc.RpcError):
            stream.send(torn(stream.request(ENVELOPED, self._chance, whole=True), self._chance))
            stream.end()

    def close(self) -> int:
        """How many messages were acknowledged."""
        self._stream.end()
        self._channel.close()
        return self._acknowledged


class _Stream:
    """One open append stream, on which answers are awaited."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.sent = 0
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = METHODS["AppendStream"].on(channel)(iter(self._requests.get, None))
        self.send(
            APPEND_STREAM_REQUEST.encode(pb.AppendStreamRequest(open=pb.AppendOpen()), b"", b"")
        )
        self._shape = shape_of(next(self._call).opened)
        self._results: list[pb.AppendBatchResult] = []

    def send(self, request: bytes) -> None:
        self._requests.put(request)
        self.sent += 1

    def request(self, topic: str, chance: random.Random, *, whole: bool) -> bytes:
        """A batch; unless `whole`, one of its parts is torn."""
        encoder = BatchEncoder(self._shape)
        bodies = [
            (chance.randbytes(chance.randrange(60)), b"") for _ in range(chance.randint(1, 4))
        ]
        encoder.add(topic, bodies)
        lengths, frames = encoder.finish()
        count = len(lengths) // 4
        if not whole and chance.random() < 0.3:
            lengths = torn(lengths, chance)
        if not whole and chance.random() < 0.8:
            frames = torn(frames, chance)
        if not whole and chance.random() < 0.1:
            count = chance.choice((0, count + 1, -1, (1 << 31) - 1))
        runs = [pb.AppendRun(topic=topic, queue_id=0, count=count)]
        head = pb.AppendStreamRequest(sequence=self.sent, runs=runs)
        self._count = len(lengths) // 4
        return APPEND_STREAM_REQUEST.encode(head, lengths, frames)

    def batches(self, count: int, chance: random.Random) -> int:
        """So many, torn; how many messages of them were acknowledged."""
        counts = []
        for _ in range(count):
            self.send(self.request(TORN, chance, whole=False))
            counts.append(self._count)
        acknowledged = 0
        for messages in counts:
            while not self._results:
                self._results = list(next(self._call).results)
            if self._results.pop(0).status == OK:
                acknowledged += messages
        return acknowledged

    def end(self) -> None:
        self._requests.put(None)
        for _ in self._call:
            pass
