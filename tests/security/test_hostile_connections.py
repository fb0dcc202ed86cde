"""Every port of a running broker, and peers that send anything. The services are processes.

After each kind of attack: every process is the one it was, its memory has not grown beyond a bound,
and a client that was there all the time finds each of its messages once.
"""

import contextlib
import random
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.client import connect
from stratamq.rpc import discovery
from stratamq.rpc.methods import METHODS
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, HA, INDEX, JANITOR
from stratamq.service.client_limits import RECEIVED_AT_ONCE
from stratamq.service.listening import UNREAD_BYTES
from stratamq.service.metrics import MAX_CONNECTIONS
from tests.security.conftest import Pki
from tests.security.recording import Recorder
from tests.support.brokers import Broker
from tests.support.waiting import until

ROOMS = (COMMITLOG, DISPATCHER, INDEX, JANITOR, HA)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
GROWTH_BYTES = 96 << 20
IDLE = 1_000
ANSWER_S = 60.0
HALF_SENT_CALLS, HALF_SENT_BYTES, HALF_SENT_CONNECTIONS = 100, 4 << 20, 4
HALF_SENT_S = 2.0
"""Without an answer for so long, the service gives no more room."""


class Attacked:
    """A broker, its ports, and a client whose messages are counted."""

    def __init__(self, broker: Broker, tls: bool, rooms: tuple[str, ...] = ROOMS) -> None:
        self.broker = broker
        self.tls = tls
        self.rooms = rooms
        found = {room: discovery.read(broker.root, room) for room in rooms}
        self.ports = {room: one.address for room, one in found.items()}
        self.ports |= {f"metrics of {room}": one.metrics for room, one in found.items()}
        if HA in rooms:
            self.ports["replication"] = until(self._replication, "the replication's address")
        self.client = connect(broker.root, retry_timeout_s=60)
        self.sent = 0

    def _replication(self) -> str:
        _, found, rest = self.broker.output(HA).rpartition("slaves connect here address=")
        return rest.split()[0] if found else ""

    def http2(self, room: str, pki: Pki, timeout_s: float = ANSWER_S) -> socket.socket:
        connection = connected(self.ports[room], timeout_s)
        if not self.tls:
            return connection
        context = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
        context.set_alpn_protocols(["h2"])
        return context.wrap_socket(connection, server_hostname="127.0.0.1")

    def before(self) -> None:
        self.pids = {room: self.broker.pid(room) for room in self.rooms}
        self.resident = {room: _resident(pid) for room, pid in self.pids.items()}

    def refused(self, room: str) -> int:
        return self.broker.output(room).count("a client was refused")

    def send(self) -> None:
        self.client.send("t", b"%d" % self.sent)
        self.sent += 1

    def unharmed(self, growth_bytes: int = GROWTH_BYTES) -> None:
        assert {room: self.broker.pid(room) for room in self.rooms} == self.pids
        for room, pid in self.pids.items():
            grown = _resident(pid) - self.resident[room]
            assert grown < growth_bytes, (room, grown)
        self.send()
        bodies = {message.body for message in self.client.consume("t")}
        assert bodies == {b"%d" % number for number in range(self.sent)}


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the process is gone")


@pytest.fixture(scope="module", params=["in clear", "tls"])
def attacked(request, tmp_path_factory, pki: Pki) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("attacked")
    tls = request.param == "tls"
    settings = ["ha.replication_address=127.0.0.1:0", *(pki.settings() if tls else ())]
    with Broker(directory / "store", directory / "logs", settings) as broker:
        broker.start(ROOMS)
        attacked = Attacked(broker, tls)
        attacked.send()
        yield attacked
        attacked.client.close()


def connected(address: str, timeout_s: float = ANSWER_S) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def threw(address: str, data: bytes) -> None:
    """Send it, read what comes, and let go."""
    with contextlib.suppress(OSError), connected(address) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)
        while connection.recv(65536):
            pass


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int = -1) -> bytes:
    """Of HTTP/2."""
    size = len(payload) if length < 0 else length
    return struct.pack(">I", size)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def garbage(chance: random.Random) -> Iterator[bytes]:
    yield b""
    for size in (1, 7, 64, 4_096, 100_000):
        yield chance.randbytes(size)
    yield PREFACE
    yield PREFACE + chance.randbytes(10_000)
    yield PREFACE + SETTINGS + frame(0, 0, 1, b"", length=0xFFFFFF)
    yield PREFACE + SETTINGS + frame(1, 4, 1, b"\x82" * 16_000)  # headers without an end
    yield PREFACE + SETTINGS + b"".join(frame(1, 5, 2 * n + 1, b"\x82") for n in range(2_000))
    yield PREFACE + SETTINGS + b"".join(frame(3, 0, 1, b"\0\0\0\0") for _ in range(2_000))
    yield PREFACE + SETTINGS + frame(9, 0, 1, b"\x40" * 16_000) * 50
    yield b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"
    yield b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 10_000
    yield b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"
    yield b"\x16\x03\x01\xff\xff" + chance.randbytes(1_000)
    yield b"\x16\x03\x01"
    yield struct.pack(">q", -1) * 100
    yield struct.pack(">q", 2**62) * 1_000
    for mark in (b"STRATAMQ", b"STRATAPQ", b"STRATAMD"):
        yield mark + struct.pack(">I", 0xFFFFFFFF) + chance.randbytes(1_000)


def test_no_port_is_harmed_by_bytes_that_are_no_protocol(attacked):
    attacked.before()
    for address in attacked.ports.values():
        for data in garbage(random.Random(1)):
            threw(address, data)
        attacked.send()
    attacked.unharmed()


def literal(name: bytes, value: bytes) -> bytes:
    """A header of HTTP/2 that is in no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers_of(path: bytes) -> bytes:
    """Of a call."""
    return (
        literal(b":method", b"POST")
        + literal(b":scheme", b"http")
        + literal(b":path", path)
        + literal(b":authority", b"broker")
        + literal(b"te", b"trailers")
        + literal(b"content-type", b"application/grpc")
    )


@pytest.mark.parametrize("path", [b"/stratamq\xd5/Get", b"\xff", b"/" + b"a" * 100, b""])
def test_a_method_name_that_is_no_text_harms_no_service(attacked, path, pki):
    """From grpcio 1.84 on the first of these ends an asyncio server for good."""
    attacked.before()
    for room in ROOMS:
        request = PREFACE + SETTINGS + frame(1, 5, 1, headers_of(path))
        with contextlib.suppress(OSError), attacked.http2(room, pki) as connection:
            connection.sendall(request)
            connection.settimeout(0.3)
            while connection.recv(65536):
                pass
    attacked.unharmed()
    with connect(attacked.broker.root) as another:
        another.log_state()


def test_no_port_is_harmed_by_the_beginning_of_a_valid_exchange(attacked, pki):
    """Recorded from a client, and cut at many places."""
    credentials = pki.token() if attacked.tls else None
    with Recorder(attacked.ports[COMMITLOG]) as log, Recorder(attacked.ports[DISPATCHER]) as queues:
        target = f"commitlog={log.address},dispatcher={queues.address}"
        with connect(target, credentials=credentials, retry_timeout_s=60) as client:
            client.send("recorded", b"x" * 1_000)
            list(client.consume("recorded"))
        sent = {COMMITLOG: log.sent(), DISPATCHER: queues.sent()}
    attacked.before()
    chance = random.Random(2)
    for room, data in sent.items():
        for cut in sorted(chance.sample(range(1, len(data)), min(60, len(data) - 1))):
            threw(attacked.ports[room], data[:cut])
        for _ in range(60):
            torn = bytearray(data)
            for _ in range(chance.randint(1, 20)):
                torn[chance.randrange(len(torn))] = chance.randrange(256)
            threw(attacked.ports[room], bytes(torn))
    attacked.unharmed()


class HalfSent(threading.Thread):
    """A connection with many calls, each of which sends its request but for the last bytes."""

    def __init__(self, connection: socket.socket, path: bytes) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._streams = range(1, 2 * HALF_SENT_CALLS, 2)
        self._room = dict.fromkeys((0, *self._streams), 65_535)
        self._left = dict.fromkeys(self._streams, HALF_SENT_BYTES)
        self._path = path
        self._window = 65_535
        self._read = bytearray()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.settimeout(HALF_SENT_S)
            self._connection.sendall(PREFACE + SETTINGS)
            head = b"\0" + struct.pack(">I", HALF_SENT_BYTES + 100)
            for stream in self._streams:
                self._connection.sendall(frame(1, 4, stream, headers_of(self._path)))
                self._connection.sendall(frame(0, 0, stream, head))
                self._room[stream] -= len(head)
            while True:  # until the service gives room to none of them
                self._send()
                self._hear()

    def _send(self) -> None:
        for stream in self._streams:
            while size := min(16_384, self._room[0], self._room[stream], self._left[stream]):
                self._connection.sendall(frame(0, 0, stream, bytes(size)))
                self._room[0] -= size
                self._room[stream] -= size
                self._left[stream] -= size

    def _hear(self) -> None:
        data = self._connection.recv(1 << 20)
        if not data:
            raise ConnectionError
        self._read += data
        while len(self._read) >= 9:
            size = int.from_bytes(self._read[:3])
            if len(self._read) < 9 + size:
                return
            kind, flags = self._read[3], self._read[4]
            stream = int.from_bytes(self._read[5:9]) & 0x7FFFFFFF
            payload = bytes(self._read[9 : 9 + size])
            del self._read[: 9 + size]
            if kind == 8:
                self._room[stream] += int.from_bytes(payload)
            elif kind == 6 and not flags:
                self._connection.sendall(frame(6, 1, 0, payload))
            elif kind == 4 and not flags:
                self._set(payload)
                self._connection.sendall(frame(4, 1, 0, b""))

    def _set(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = struct.unpack(">HI", payload[at : at + 6])
            if name == 4:
                for stream in self._streams:
                    self._room[stream] += value - self._window
                self._window = value


@pytest.mark.parametrize("room", [COMMITLOG, DISPATCHER])
def test_requests_that_are_never_sent_whole_take_little_memory(attacked, room, pki):
    """gRPC would read each of them before anybody is asked: 1.6 GB in this test."""
    unread = HALF_SENT_CONNECTIONS * HALF_SENT_CALLS * UNREAD_BYTES
    received = RECEIVED_AT_ONCE * HALF_SENT_BYTES
    method = METHODS["Append" if room == COMMITLOG else "Pull"]
    attacked.before()
    with contextlib.ExitStack() as stack:
        threads = []
        for _ in range(HALF_SENT_CONNECTIONS):
            connection = stack.enter_context(attacked.http2(room, pki))
            threads.append(HalfSent(connection, method.path.encode()))
            threads[-1].start()
        for thread in threads:
            thread.join()
        attacked.unharmed(unread + received + GROWTH_BYTES // 2)


def test_idle_connections_do_not_take_the_descriptors_that_files_need(tmp_path):
    settings = ["commitlog.segment_bytes=1048576", "limits.connections=256"]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        resource.prlimit(broker.pid(COMMITLOG), resource.RLIMIT_NOFILE, (1024, 1024))
        found = discovery.read(broker.root, COMMITLOG)
        with contextlib.ExitStack() as stack:
            for _ in range(2 * IDLE):
                connection = stack.enter_context(connected(found.address))
                with contextlib.suppress(OSError):
                    connection.sendall(PREFACE + SETTINGS)
            with connect(broker.root) as client, client.producer() as producer:
                for number in range(3_000):
                    producer.send("t", b"%d" % number + b"x" * 2_000)
                producer.flush()
                assert sum(1 for _ in client.consume("t")) == 3_000


def test_a_thousand_idle_connections_cost_little(attacked):
    attacked.before()
    with contextlib.ExitStack() as stack:
        for room in (COMMITLOG, "replication", "metrics of commitlog"):
            address = attacked.ports[room]
            for _ in range(IDLE):
                with contextlib.suppress(OSError):
                    stack.enter_context(connected(address))
        attacked.unharmed()
    attacked.unharmed()


def test_a_peer_that_reads_nothing_delays_no_other_client(attacked, pki):
    """Requests whose answers are large, and nothing is read of them."""
    for number in range(64):
        attacked.client.send("large", b"%d" % number + b"x" * 65_536)
    attacked.before()
    pull = METHODS["PullStream"].path
    stop = threading.Event()

    def stuck() -> None:
        import grpc

        credentials = pki.token() if attacked.tls else None
        address = attacked.ports[DISPATCHER]
        with (
            credentials.connect(grpc, address, None)
            if credentials
            else grpc.insecure_channel(address)
        ) as channel:
            queues = [pb.PullQueue(topic="large", queue_id=queue, offset=0) for queue in range(4)]
            request = pb.PullStreamRequest(queues=queues).SerializeToString()
            calls = [channel.unary_stream(pull)(request) for _ in range(20)]
            stop.wait(ANSWER_S)
            for call in calls:
                call.cancel()

    thread = threading.Thread(target=stuck)
    thread.start()
    try:
        for _ in range(20):
            attacked.send()
    finally:
        stop.set()
        thread.join()
    attacked.unharmed()


RESET_CALLS = 20_000


def test_streams_that_are_opened_and_reset_harm_no_other_client(attacked, pki):
    attacked.before()
    path = METHODS["Append"].path.encode()
    with attacked.http2(COMMITLOG, pki) as connection:
        connection.sendall(PREFACE + SETTINGS)
        with contextlib.suppress(OSError):
            for stream in range(1, 2 * RESET_CALLS, 2):
                opened = frame(1, 4, stream, headers_of(path))
                connection.sendall(opened + frame(3, 0, stream, b"\0\0\0\x08"))
    attacked.unharmed()


UNTAKEN_CALLS = 1_000


@pytest.mark.parametrize("kind", ["Pull", "PullStream"])
def test_answers_that_are_never_taken_take_little_memory(tmp_path, pki, kind):
    """gRPC keeps each answer until its client gives it room: 1.6 GB a second in this test."""
    settings = ["limits.bytes_in_flight=33554432", *pki.settings()]
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER])
        attacked = Attacked(broker, True, (COMMITLOG, DISPATCHER))
        body = b"x" * (1 << 20)
        for _ in range(8):
            attacked.client.send("large", body, queue_id=0)
        asked = {"topic": "large", "queue_id": 0}
        request = {
            "Pull": pb.PullRequest(**asked, max_messages=32, max_bytes=8 << 20),
            "PullStream": pb.PullStreamRequest(queues=[pb.PullQueue(**asked)], max_bytes=8 << 20),
        }[kind].SerializeToString()
        until(lambda: len(list(attacked.client.consume("large"))) == 8, "all can be read")
        attacked.before()
        with attacked.http2(DISPATCHER, pki) as connection:
            # No window: nothing of an answer may be sent.
            connection.sendall(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
            head = headers_of(METHODS[kind].path.encode())
            for stream in range(1, 2 * UNTAKEN_CALLS, 2):
                connection.sendall(frame(1, 4, stream, head))
                connection.sendall(
                    frame(0, 1, stream, b"\0" + struct.pack(">I", len(request)) + request)
                )
            refused = until(lambda: attacked.refused(DISPATCHER), "some are refused")
            assert refused > 0
            attacked.unharmed((32 << 20) + GROWTH_BYTES)
        attacked.client.close()


@pytest.mark.parametrize("attack", [b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\0\0\0"])
def test_a_handshake_that_stands_still_keeps_no_slave_or_scraper_out(attacked, attack, pki):
    attacked.before()
    with contextlib.ExitStack() as stack:
        for room in ("replication", "metrics of commitlog", COMMITLOG):
            for _ in range(4 * MAX_CONNECTIONS):
                connection = stack.enter_context(connected(attacked.ports[room]))
                with contextlib.suppress(OSError):  # it was closed for the next one
                    connection.sendall(attack)
        context = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
        connection = stack.enter_context(connected(attacked.ports["metrics of commitlog"]))
        if attacked.tls:
            connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert connection.recv(15).startswith(b"HTTP/1.0 200")
    attacked.unharmed()
