"""Peers that send arbitrary bytes, on both sides: nothing crashes, hangs or is written to a log."""

import contextlib
import random
import socket
import struct
import threading

import pytest

from stratamq.client import connect
from stratamq.formats.replication import REPORT, TRANSFER_HEAD
from stratamq.formats.replication_fields import LENGTH
from stratamq.formats.replication_opening import (
    MARK,
    MasterAnswer,
    SlaveOpening,
    Verdict,
    encode_master_answer,
    encode_slave_opening,
)
from stratamq.rpc.permission_file import Permissions, dump
from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, segments, until
from tests.support.brokers import COMMITLOG, HA, Broker

DEADLINE_S = 60.0


def words(chance: random.Random, end: int) -> bytes:
    """Bytes for a master: random ones, and valid ones at the wrong place."""
    opening = encode_slave_opening(
        SlaveOpening(end, 0, SEGMENT, "broker-a", [(chance.getrandbits(40), 0)])
    )
    return chance.choice(
        [
            b"",
            chance.randbytes(chance.randrange(1, 100)),
            MARK,
            MARK + chance.randbytes(3),
            MARK + LENGTH.pack(0xFFFFFFFF),
            MARK + LENGTH.pack(60_000) + chance.randbytes(1_000),
            MARK + opening[: chance.randrange(len(opening))],
            MARK + opening + chance.randbytes(20),
            MARK + MARK + opening,
            REPORT.pack(-1),
            REPORT.pack(1 << 62),
            REPORT.pack(end) + REPORT.pack(end + 1),
            REPORT.pack(0)[: chance.randrange(8)],
            REPORT.pack(end // 2) + chance.randbytes(64),
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
    )


def test_a_master_serves_slaves_whatever_other_peers_send(tmp_path):
    chance = random.Random(5)
    with Pair(tmp_path) as pair:
        pair.start_master()
        pair.send(100)
        end = log_status(pair.master).appended_offset
        host, _, port = pair.replication_address().rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(10)]
        for _ in range(150):
            with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
                with contextlib.suppress(OSError):
                    peer.sendall(words(chance, end))
                    if chance.random() < 0.5:
                        peer.shutdown(socket.SHUT_WR)
                    peer.settimeout(0.01)
                    peer.recv(1 << 16)
                if chance.random() < 0.3:
                    linger = struct.pack("ii", 1, 0)
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        pair.start_slave()
        pair.send(20)
        pair.caught_up()
        pair.assert_equal()
        for peer in silent:
            peer.close()
        until(
            lambda: len([one for one in ha_status(pair.master).slaves if one.connected]) == 1,
            "only the slave is left",
        )
        assert "CRITICAL" not in pair.master.output(HA)


def test_a_slave_that_acknowledges_beyond_the_end_is_disconnected_and_reported(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        pair.send(10)
        end = log_status(pair.master).appended_offset
        until(
            lambda: ha_status(pair.master).shippable_offset == end, "replication has all of the log"
        )
        host, _, port = pair.replication_address().rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
            peer.sendall(REPORT.pack(end))
            peer.sendall(REPORT.pack(end + 8))
            while peer.recv(1 << 16):
                continue
        (gone,) = until(
            lambda: [one for one in ha_status(pair.master).slaves if not one.connected],
            "the disconnected slave is reported",
        )
        assert gone.acknowledged_offset == end
        assert f"the slave has the log up to {end + 8}" in gone.problem


def test_connections_that_send_nothing_keep_no_slave_out_and_are_few_lines_and_states(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start_master()
        pair.send(100)
        host, _, port = pair.replication_address().rpartition(":")
        with contextlib.ExitStack() as stack:
            for number in range(600):
                peer = socket.create_connection((host, int(port)), DEADLINE_S)
                stack.enter_context(peer)
                if number % 2:
                    peer.sendall(MARK + LENGTH.pack(0xFFFFFFFF))
            pair.start_slave()
            pair.send(20)
            pair.caught_up()
            assert len(ha_status(pair.master).slaves) < 70
            for _ in range(600):
                stack.enter_context(socket.create_connection((host, int(port)), DEADLINE_S))
            pair.send(20)
            pair.caught_up()  # over the connection that it has
        lines = pair.master.output(HA).splitlines()
        assert sum("slave left" in line for line in lines) < 600
        pair.assert_equal()


@pytest.mark.parametrize("kind", ["STRATAMQ", "ROCKETMQ"])
def test_who_may_what_without_tls_gives_the_log_to_named_addresses_alone(tmp_path, kind):
    """Slaves can show nothing there: the port would give every body to who connects."""
    access = tmp_path / "access.json"
    access.write_bytes(dump(Permissions()))
    with Pair(tmp_path, both=[f"access.file={access}"]) as pair:
        pair.start_master()
        with connect(pair.master.root) as client:
            client.send("t", b"a body")
        host, _, port = pair.replication_address().rpartition(":")
        with (
            socket.create_connection((host, int(port)), DEADLINE_S) as peer,
            contextlib.suppress(ConnectionError),
        ):
            peer.sendall(MARK if kind == "STRATAMQ" else REPORT.pack(0))
            assert peer.recv(1 << 16) == b""
        until(
            lambda: "set tls.certificate" in pair.master.output(HA), "the log contains what to do"
        )


def test_named_addresses_get_the_log_without_tls(tmp_path):
    access = tmp_path / "access.json"
    access.write_bytes(dump(Permissions()))
    settings = [f"access.file={access}", "ha.allowed_slaves=127.0.0.1"]
    with Pair(tmp_path, both=settings) as pair:
        pair.start()
        with connect(pair.master.root) as client:
            client.send("t", b"a body")
        with connect(pair.slave.root) as client:
            until(lambda: client.log_state().appended_offset > 0, "the slave follows")


class HostileMaster:
    """Answers every connection by a call of `answer`."""

    def __init__(self, answer) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with peer, contextlib.suppress(OSError):
                peer.settimeout(2.0)
                self._answer(peer)


@pytest.mark.parametrize("kind", ["STRATAMQ", "ROCKETMQ"])
def test_a_slave_takes_nothing_that_is_no_log(tmp_path, kind):
    chance = random.Random(11)

    def answer(peer: socket.socket) -> None:
        if kind == "STRATAMQ":
            if chance.random() < 0.2:
                peer.sendall(chance.randbytes(50))
                return
            if peer.recv(4) != MARK:
                return  # an unrelated client of a port that another process used before
            peer.sendall(MARK)
            peer.recv(1 << 16)
            if chance.random() < 0.3:
                peer.sendall(LENGTH.pack(chance.getrandbits(32)) + chance.randbytes(200))
                return
            # Never an order to give up what it has: that would be obeyed.
            keeps = MasterAnswer(Verdict.KEEP, 0, 0, 0, 0, "", "", [(5, 0)])
            peer.sendall(encode_master_answer(keeps))
        peer.recv(8)
        size = chance.randrange(1, 3_000)
        peer.sendall(
            chance.choice(
                [
                    chance.randbytes(200),
                    TRANSFER_HEAD.pack(0, size) + chance.randbytes(size),
                    TRANSFER_HEAD.pack(0, -1),
                    TRANSFER_HEAD.pack(0, 1 << 30),
                    TRANSFER_HEAD.pack(0, 0) + TRANSFER_HEAD.pack(64, 10) + bytes(10),
                    TRANSFER_HEAD.pack(7, 100) + bytes(100),
                    TRANSFER_HEAD.pack(0, SEGMENT) + bytes(SEGMENT),
                    b"",
                ]
            )
        )

    hostile = HostileMaster(answer)
    settings = [
        f"commitlog.segment_bytes={SEGMENT}",
        "commitlog.role=SLAVE",
        "commitlog.followers=",
        f"ha.master={hostile.address}",
        f"ha.master_kind={kind}",
        "ha.replication_address=127.0.0.1:0",
        "ha.reconnect_longest_ms=10",
    ]
    with Broker(tmp_path / "slave", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, HA])
        until(lambda: hostile.connections >= 60, "it has come back again and again")
        hostile.close()
        until(
            lambda: ha_status(broker).following.problem,
            "the slave reports why it follows no master",
        )
        assert log_status(broker).appended_offset == 0
        assert segments(broker) == {}
        assert "CRITICAL" not in broker.output(HA) + broker.output(COMMITLOG)
        broker.stop()


def test_a_slave_of_ours_sends_a_rocketmq_master_less_than_a_report_and_logs_it(tmp_path):
    """RocketMQ would take any eight bytes for an acknowledgement."""
    heard: list[bytes] = []

    def answer(peer: socket.socket) -> None:
        while data := peer.recv(100):
            heard.append(data)

    rocketmq = HostileMaster(answer)
    settings = [
        "commitlog.role=SLAVE",
        "commitlog.followers=",
        f"commitlog.segment_bytes={SEGMENT}",
        f"ha.master={rocketmq.address}",
        "ha.replication_address=127.0.0.1:0",
        "ha.heartbeat_ms=100",
        "ha.housekeeping_ms=500",
    ]
    with Broker(tmp_path / "slave", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, HA])
        until(
            lambda: "ha.master_kind=ROCKETMQ" in ha_status(broker).following.problem,
            "the problem names a possible cause",
        )
        rocketmq.close()
        assert set(heard) == {MARK}
        broker.stop()
