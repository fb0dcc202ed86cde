"""`stratamq.scan` of a running broker, while it is written to, and while its oldest goes away."""

import subprocess
import sys
import threading
from itertools import pairwise

import pytest

import stratamq
from stratamq.api.v1 import commitlog_pb2
from stratamq.client import connect
from stratamq.errors import NotFoundError, OffsetOutOfRangeError, StrataError
from stratamq.store.confirmed import CHECKPOINT_PATH
from tests.support.brokers import COMMITLOG, DISPATCHER
from tests.support.waiting import until, until_dispatched, until_readable_in_files
from tests.table.conftest import (
    ROUNDS,
    SEGMENT_BYTES,
    address_of,
    fill,
    rows_by_client,
    send,
)

DEADLINE_S = 240


def rows(*arguments, **options):
    return stratamq.scan(*arguments, **options).to_arrow().to_pylist()


def in_log_order(found):
    return sorted(found, key=lambda row: row["physicalOffset"])


@pytest.fixture
def stored(running):
    """What was stored, once a reader of the files alone may see it, too."""
    rows = fill(running)
    until_readable_in_files(running.root)
    return rows


def test_everything_comes_from_the_log_in_its_order(running, stored):
    assert rows(address_of(running.root, COMMITLOG)) == stored
    log_alone = address_of(running.root, COMMITLOG).removeprefix("commitlog=")
    assert rows(log_alone) == stored
    assert rows(address_of(running.root, COMMITLOG, DISPATCHER)) == stored


def moment(row):
    return round(row["storeTimestamp"].timestamp() * 1000)


def test_every_option_gives_what_the_directory_gives(running, stored):
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    alone = address_of(running.root, COMMITLOG)
    middle = moment(stored[len(stored) // 2])
    single = {("orders", 1): (5, 150), ("flights", 0): (0, 3)}
    for options, wanted in [
        ({"topic": "orders"}, lambda row: row["topic"] == "orders"),
        ({"topic": ["orders", "flights"]}, lambda row: True),
        ({"topic": "unknown"}, lambda row: False),
        ({"queues": 1}, lambda row: row["queueId"] == 1),
        ({"offsets": (10, 20)}, lambda row: 10 <= row["queueOffset"] < 20),
        (
            {"offsets": single},
            lambda row: (
                row["queueOffset"] in range(*single.get((row["topic"], row["queueId"]), (0, 0)))
            ),
        ),
        ({"since": middle}, lambda row: moment(row) >= middle),
        (
            {"topic": "orders", "until": middle},
            lambda row: row["topic"] == "orders" and moment(row) < middle,
        ),
        (
            {"topic": "orders", "queues": [0], "offsets": (20, 180), "since": middle},
            lambda row: (
                row["topic"] == "orders"
                and row["queueId"] == 0
                and 20 <= row["queueOffset"] < 180
                and moment(row) >= middle
            ),
        ),
    ]:
        expected = [row for row in stored if wanted(row)]
        assert in_log_order(rows(address, **options)) == expected, options
        assert rows(alone, **options) == expected, options


def test_selected_queues_are_read_by_the_dispatcher_not_from_the_log(running, stored, monkeypatch):
    read = []
    original = stratamq.client.Client.log_frames

    def log_frames(self, begin, end=0):
        read.append((begin, end))
        return original(self, begin, end)

    monkeypatch.setattr(stratamq.client.Client, "log_frames", log_frames)
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    found = rows(address, topic="orders", queues=1)
    assert len(found) == ROUNDS // 2
    assert [row["queueOffset"] for row in found] == list(range(ROUNDS // 2))
    assert read == []


def test_what_the_dispatcher_has_not_applied_yet_comes_from_the_log(running, stored):
    """Once each, whatever it applies meanwhile."""
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    stop = threading.Event()
    failed = []

    def write():
        with connect(running.root) as client:
            first = ROUNDS
            while not stop.is_set():
                send(client, first, 50)
                first += 50

    def guarded():
        try:
            write()
        except StrataError as error:
            failed.append(error)

    writer = threading.Thread(target=guarded)
    writer.start()
    try:
        for _ in range(10):
            found = rows(address, topic="orders", columns=["queueId", "queueOffset", "size"])
            for queue in (0, 1):
                offsets = [row["queueOffset"] for row in found if row["queueId"] == queue]
                assert offsets == list(range(len(offsets)))
                assert len(offsets) >= ROUNDS // 2
    finally:
        stop.set()
        writer.join(DEADLINE_S)
    assert failed == []


def test_a_directory_that_is_written_to_gives_a_beginning_of_the_log(running, stored):
    stop = threading.Event()

    def write():
        with connect(running.root) as client:
            first = ROUNDS
            while not stop.is_set():
                send(client, first, 50)
                first += 50

    writer = threading.Thread(target=write)
    writer.start()
    columns = ["topic", "physicalOffset", "size", "body", "queueOffset"]
    try:
        found = [rows(running.root, columns=columns) for _ in range(10)]
    finally:
        stop.set()
        writer.join(DEADLINE_S)
    with connect(running.root) as client:
        until_dispatched(client)
        everything = [{name: row[name] for name in columns} for row in rows_by_client(client)]
    for earlier, later in pairwise(found):
        assert len(earlier) <= len(later)
    for some in found:
        assert some == everything[: len(some)]


def test_after_a_kill_the_files_give_what_was_confirmed_and_no_more(running, stored):
    running.kill_all()
    confirmed = int.from_bytes((running.root / CHECKPOINT_PATH).read_bytes()[32:40], "big")
    found = rows(running.root)
    ends = [row["physicalOffset"] + row["size"] for row in stored]
    if confirmed:  # it is written every second
        assert found == [row for row, end in zip(stored, ends, strict=True) if end <= confirmed]
    assert found == stored[: len(found)]


@pytest.mark.parametrize("topic", ["None", "'orders'"])
def test_a_program_that_leaves_a_scan_half_read_ends(running, stored, topic):
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    program = f"""
import stratamq
batches = iter(stratamq.scan({address!r}, topic={topic}))
print(next(batches).num_rows > 0)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


# --- retention ---


def delete_below(broker, offset):
    """Until the files are gone: followers may hold them a little longer."""
    request = commitlog_pb2.DeleteBelowRequest(offset=offset, max_segments=100, urgent=True)
    kept = str(offset).zfill(20)
    until(
        lambda: (
            broker.log.DeleteBelow(request, timeout=DEADLINE_S).minimum_offset == offset
            and min(path.name for path in (broker.root / "commitlog").iterdir()) == kept
        ),
        "the files are gone",
    )


def test_segments_deleted_before_a_scan_are_not_in_it(running, stored):
    delete_below(running, 2 * SEGMENT_BYTES)
    expected = [row for row in stored if row["physicalOffset"] >= 2 * SEGMENT_BYTES]
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    assert rows(running.root)[0] == expected[0]
    assert rows(address) == expected
    orders = [row for row in expected if row["topic"] == "orders"]
    assert in_log_order(rows(address, topic="orders")) == orders


def test_segments_deleted_during_a_scan_of_the_directory_end_it_clearly(running, stored):
    scan = iter(stratamq.scan(running.root))
    found = next(scan).to_pylist()
    delete_below(running, 3 * SEGMENT_BYTES)
    with pytest.raises(OffsetOutOfRangeError, match="was deleted"):
        for batch in scan:
            found += batch.to_pylist()
    assert found == stored[: len(found)]


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}], ids=["log", "queues"])
def test_segments_deleted_during_a_scan_of_the_broker_give_no_wrong_row(running, stored, options):
    """The services hold what they have opened: all of it comes, or a clear error."""
    expected = [row for row in stored if not options or row["topic"] == "orders"]
    address = address_of(running.root, COMMITLOG, DISPATCHER)
    scan = iter(stratamq.scan(address, **options))
    found = next(scan).to_pylist()
    delete_below(running, 3 * SEGMENT_BYTES)
    try:
        for batch in scan:
            found += batch.to_pylist()
    except (OffsetOutOfRangeError, NotFoundError):
        assert len(found) < len(expected)
    else:
        assert in_log_order(found) == expected
    assert all(row in expected for row in found)
