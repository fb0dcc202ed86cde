"""A page of the log that the device refuses (EIO, from a file system of FUSE): DATA_LOSS for the
messages stored in it, from every call that reads them, and no process dies."""

from collections.abc import Iterator

import grpc
import pytest
from stratamq_commitlog.recovery.own_state import OwnState
from stratamq_torture.processes.power import ForgetfulDisk, missing

from stratamq.api.v1 import commitlog_pb2
from stratamq.client import Client, connect
from stratamq.errors import CorruptionError
from stratamq.files.real import RealFiles
from stratamq.rpc.status import from_rpc_error
from tests.support.brokers import ROOMS, Broker
from tests.support.logs import segment_path
from tests.support.waiting import until, until_dispatched, until_indexed

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no forgetful disk: {missing()}")

PAGE = 4096
SEGMENT = 1 << 18
"""So large that the page that is read ahead of, and behind, the refused one is in the same file."""
COUNT = 200
CUT_HEAD = 80
"""This message begins so closely before the refused page that its length is not all before it."""
SETTINGS = (
    f"commitlog.segment_bytes={SEGMENT}",
    "commitlog.scrub_bytes_per_second=0",
    "dispatcher.queue_file_bytes=20000",
    "index.index_slots=100",
    "index.index_items=1000",
)


class Stored:
    """A broker on the disk, with messages in one queue, some of them in the page to be refused."""

    def __init__(self, disk: ForgetfulDisk, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client
        self.bodies = [b"%d" % number + bytes(900) for number in range(COUNT)]
        self.places: list[int] = []
        for number in range(COUNT):
            if number == CUT_HEAD - 1:
                before = client.log_state().appended_offset
                overhead = self.places[1] - self.places[0] - len(self.bodies[0])
                target = (before + 2 * PAGE) // PAGE * PAGE - 4
                self.bodies[number] = bytes(target - before - overhead)
            sent = client.send("t", self.bodies[number], queue_id=0, keys=[f"key-{number:03}"])
            self.places.append(sent.physical_offset)
        self.begin = self.places[CUT_HEAD] + 4
        assert self.begin % PAGE == 0
        self.end = end = client.log_state().appended_offset
        until_dispatched(client, end)
        until_indexed(client, end)
        ends = [*self.places[1:], end]
        self.lost = [
            number
            for number in range(COUNT)
            if self.places[number] < self.begin + PAGE and ends[number] > self.begin
        ]
        assert self.lost[0] == CUT_HEAD and 3 <= len(self.lost) <= 7
        self._disk = disk

    def refuse(self) -> None:
        path = self.broker.root / segment_path(0)
        self._disk.refuse(path, self.begin, self.begin + PAGE)
        with path.open("rb") as file, pytest.raises(OSError, match="Input/output error"):
            file.seek(self.begin)
            file.read(1)

    def check(self) -> None:
        """Every call refuses data in the page; everything else is readable."""
        for number, place in enumerate(self.places):
            if number in self.lost:
                with pytest.raises(CorruptionError):
                    self.client.message_at(place)
                with pytest.raises(CorruptionError):
                    self.client.pull("t", 0, number)
                assert self.client.query_key("t", f"key-{number:03}").messages == []
            else:
                assert self.client.message_at(place).body == self.bodies[number]
                assert self.client.pull("t", 0, number).messages[0].body == self.bodies[number]
                (found,) = self.client.query_key("t", f"key-{number:03}").messages
                assert found.body == self.bodies[number]
        pieces: list[bytes] = []
        with pytest.raises(grpc.RpcError) as caught:
            for answer in self.broker.log.ReadRange(commitlog_pb2.ReadRangeRequest()):
                pieces.append(answer.data)
        assert isinstance(from_rpc_error(caught.value), CorruptionError)
        assert sum(map(len, pieces)) == self.begin
        streamed = []
        with pytest.raises(CorruptionError):
            self._stream(0, streamed)
        assert streamed == self.bodies[: self.lost[0]]
        behind = self.lost[-1] + 1
        rest: list[bytes] = []
        self._stream(behind, rest)
        assert rest[: COUNT - behind] == self.bodies[behind:]
        assert all(self.broker.running(room) for room in ROOMS)

    def _stream(self, offset: int, into: list[bytes]) -> None:
        """A PullStream from this message to the end."""
        with self.client.consume("t", queues=[0], offset=offset, retry_timeout_s=0) as reader:
            for message in reader:
                into.append(message.body)


@pytest.fixture
def stored(tmp_path) -> Iterator[Stored]:
    with ForgetfulDisk() as disk:
        broker = Broker(disk.mountpoint / "store", tmp_path / "logs", SETTINGS)
        with broker:
            broker.start()
            with connect(broker.root, retry_timeout_s=60) as client:
                yield Stored(disk, broker, client)


def test_a_page_that_the_device_refuses_costs_its_messages_and_no_process(stored):
    stored.refuse()
    stored.check()
    assert stored.client.send("t", b"goes on", queue_id=0).queue_offset == COUNT


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_start_over_a_refused_page_gives_everything_else(stored, how):
    """Of what is known to be durable; behind that a start reads everything, and is refused."""

    def known_durable() -> bool:
        # What it holds open would keep the disk mounted.
        snapshot = OwnState(RealFiles(stored.broker.root)).load()
        return snapshot is not None and snapshot.offset == stored.end

    until(known_durable, "a snapshot of the log's end")
    stored.refuse()
    for room in reversed(ROOMS):
        stored.broker.terminate(room) if how == "stop" else stored.broker.kill(room)
    stored.broker.start()
    stored.check()
    assert stored.client.send("t", b"goes on", queue_id=0).queue_offset == COUNT
