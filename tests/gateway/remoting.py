"""A client of the remoting protocol, written from spec/remoting.md 1 alone."""

import base64
import hmac
import json
import socket
import ssl
import struct
from dataclasses import dataclass, field

from stratamq.rpc.address import split_address

TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Reply:
    code: int
    remark: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> dict:
        return json.loads(self.body)


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    return struct.pack(">II", length, kind << 24 | len(header)) + header + body


def request(code: int, fields: dict[str, object], body: bytes, opaque: int, flag: int = 0) -> bytes:
    said = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 395}
    texts = {name: str(value) for name, value in fields.items()}
    return frame(json.dumps(said | {"extFields": texts}).encode(), body)


class Remoting:
    def __init__(
        self, address: str, tls: ssl.SSLContext | None = None, key: tuple[str, str] | None = None
    ) -> None:
        """`key`: the access key and the secret key with which requests are signed."""
        self.socket = socket.create_connection(split_address(address), timeout=TIMEOUT_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._key = key
        self._read = self.socket.makefile("rb")
        self._opaque = 0
        self.told: list[int] = []
        """Codes of the server's requests."""
        self.answers: dict[int, bytes] = {}
        """The bodies with which they are answered."""

    def __enter__(self) -> "Remoting":
        return self

    def __exit__(self, *error: object) -> None:
        self._read.close()
        self.socket.close()

    def ask(self, code: int, body: bytes = b"", /, **fields: object) -> Reply:
        self._opaque += 1
        if self._key is not None:
            fields["AccessKey"], secret = self._key
            signed = "".join(str(fields[name]) for name in sorted(fields)).encode() + body
            made = hmac.digest(secret.encode(), signed, "sha1")
            fields["Signature"] = base64.b64encode(made).decode()
        self.socket.sendall(request(code, fields, body, self._opaque))
        while True:
            header, reply = self.take()
            if header["flag"] & 1 and header["opaque"] == self._opaque:
                return reply

    def take(self) -> tuple[dict, Reply]:
        """What comes next, answered if it is a request for which there is an answer. EOFError."""
        header, taken = self.receive()
        if not header["flag"] & 1:
            self.told.append(taken.code)
            if taken.code in self.answers:
                body = self.answers[taken.code]
                self.socket.sendall(request(0, {}, body, header["opaque"], flag=1))
        return header, taken

    def take_until(self, code: int) -> Reply:
        """The server's next request of this code."""
        while True:
            header, taken = self.take()
            if taken.code == code and not header["flag"] & 1:
                return taken

    def receive(self) -> tuple[dict, Reply]:
        """The header and the content of what comes next: an answer, or a request of the server.
        EOFError."""
        head = self._read.read(8)
        if len(head) < 8:
            raise EOFError("the server has closed the connection")
        length, kind = struct.unpack(">II", head)
        data = self._read.read(length - 4)
        if len(data) < length - 4:
            raise EOFError("the server has closed the connection within an answer")
        assert kind >> 24 == 0, "answers have JSON headers"
        header = json.loads(data[: kind & 0xFFFFFF])
        given = (header.get("remark") or "", header.get("extFields") or {}, data[kind & 0xFFFFFF :])
        return header, Reply(header["code"], *given)


def send(client: Remoting, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> Reply:
    packed = "".join(f"{name}\1{value}\2" for name, value in properties.items())
    fields = {"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1}
    return client.ask(310, body, **fields, h=0, i=packed, j=0)


def beat(
    client: Remoting,
    name: str,
    *,
    consumer: str = "",
    producer: str = "",
    topic: str = "orders",
    sql: str = "",
) -> None:
    """Send the heartbeat of a client that consumes the topic for a group, or produces."""
    expression = {"subString": sql, "expressionType": "SQL92"} if sql else {"subString": "*"}
    details = {
        "groupName": consumer, "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subVersion": 1, **expression}],
    }  # fmt: skip
    said = {
        "clientID": name,
        "producerDataSet": [{"groupName": producer}] if producer else [],
        "consumerDataSet": [details] if consumer else [],
    }
    assert client.ask(34, json.dumps(said).encode()).code == 0


def pull(client: Remoting, topic: str, offset: int, queue_id: int = 0, **fields: object) -> Reply:
    asked = {"consumerGroup": "billing", "topic": topic, "queueId": queue_id, "sysFlag": 4}
    asked |= {"queueOffset": offset, "maxMsgNums": 32, "commitOffset": 0, "subVersion": 0}
    return client.ask(11, **(asked | {"subscription": "*", "suspendTimeoutMillis": 0} | fields))
