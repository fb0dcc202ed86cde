"""A promoted slave continues in its master's tier; what its log never had is absent afterwards."""

from stratamq.api.v1.commitlog_pb2 import DeleteBelowRequest
from stratamq.client import Client, Message, connect
from stratamq.files.real import RealFiles
from stratamq.formats.frame import decode
from stratamq.formats.generation_number import make_number
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.progress import ProgressObject
from tests.ha.pairs import SEGMENT, Pair
from tests.support.storages import no_pause
from tests.support.waiting import until
from tests.tier_service.test_uploading import Tier

ROOMS = ("dispatcher", "tier")


def settings(tmp_path) -> tuple[str, ...]:
    return (
        "dispatcher.queue_file_bytes=20000",
        f"tier.target={tmp_path / 'tier'}",
        "tier.scan_interval_ms=50",
        "tier.batch_wait_ms=50",
        "tier.record_segment_bytes=20000",
        "tier.mount_look_ms=200",
    )


def send(client: Client, text: str, first: int, count: int, step: int = 1) -> None:
    for number in range(first, first + count, step):
        client.send_message(Message("t", b"%s-%d" % (text.encode(), number), queue_id=number % 2))


def in_log(client: Client) -> dict[tuple[int, int], bytes]:
    return {(one.queue_id, one.queue_offset): one.body for one in client.consume("t")}


def in_tier(tmp_path) -> dict[tuple[int, int], bytes]:
    storage = PosixStorage(RealFiles(tmp_path / "tier"), no_pause)
    found = {}
    for place in run(queues_of("DefaultCluster", "broker-a"), storage):
        opened = run(open_queue(place), storage)
        if opened is None:
            continue  # nothing is committed yet
        queue = opened.queue
        offset = queue.minimum
        while offset < queue.end:
            answer = run(pull(queue, offset, 100), storage)
            for one in answer.messages:
                found[place.queue_id, one.offset] = bytes(decode(bytes(one.record)).body)
            offset = answer.next
    return found


def promoted(pair: Pair) -> Client:
    """The slave without its master, as a master."""
    client = connect(pair.slave.root, retry_timeout_s=60)
    client.admin.promote(force=True)
    until(lambda: client.log_state().writable, "the slave is the master")
    return client


def test_a_slave_does_not_write_and_continues_where_its_master_ended(tmp_path):
    with Pair(tmp_path, rooms=ROOMS, both=settings(tmp_path)) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "first", 0, 40)
            until(lambda: in_tier(tmp_path) == in_log(client), "the master has uploaded")
        pair.caught_up()
        pair.master.kill(*pair.rooms)
        with promoted(pair) as client:
            send(client, "second", 40, 40)
            until(lambda: in_tier(tmp_path) == in_log(client), "the slave has uploaded")
            assert len(in_tier(tmp_path)) == 80
    assert Tier(tmp_path).faults() == []


def test_a_slave_knows_the_queues_that_came_into_the_tier_after_its_own_service_began(tmp_path):
    deleting = (*settings(tmp_path), "commitlog.release_timeout_ms=0")
    with Pair(tmp_path, rooms=ROOMS, both=deleting) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            for number in range(40):
                client.send_message(Message("t", bytes(5_000), queue_id=number % 2))
            until(lambda: len(in_tier(tmp_path)) == 40, "the master has uploaded")
            # What is read anew lets it store how far it has come.
            client.send_message(Message("later", b"", queue_id=0))
            pair.caught_up()
            end = client.log_state().appended_offset
        with connect(pair.slave.root, retry_timeout_s=60) as client:

            def is_released() -> bool:
                (tier,) = (one for one in client.log_state().followers if one.name == "tier")
                return tier.durable_offset >= SEGMENT

            # The master's progress lets the slave's log delete.
            until(is_released, "the slave's service knows what is in the tier")
            below = end - end % SEGMENT
            until(lambda: client.admin.delete_below(below)[0] == below, "segments go")
            until(
                lambda: {one.min_offset for one in client.queues("t")} == {0}, "it knows the tier"
            )
            first = next(iter(client.consume("t", queues=[0]))).store_timestamp_ms
            assert client.offset_at_time("t", 0, first) == 0
            assert len(list(client.consume("t"))) == 40


def test_what_the_old_master_alone_had_leaves_the_tier_for_the_new_ones_messages(tmp_path):
    with Pair(tmp_path, rooms=ROOMS, both=settings(tmp_path)) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "shared", 0, 40)
            pair.caught_up()
            pair.wire.hold()
            send(client, "lost", 40, 60)
            client.send_message(Message("t", b"lost: the queue's first", queue_id=3))
            until(lambda: in_tier(tmp_path) == in_log(client), "the master has uploaded")
        pair.master.kill(*pair.rooms)
        with promoted(pair) as client:
            # Queue 1 gets none.
            send(client, "kept", 40, 40, step=2)
            until(lambda: in_tier(tmp_path) == in_log(client), "the tier is the new log's")
            bodies = set(in_tier(tmp_path).values())
            assert not any(body.startswith(b"lost") for body in bodies)
            assert len(bodies) == 60
    assert Tier(tmp_path).faults() == []


def test_what_the_old_master_alone_had_leaves_also_where_the_log_has_deleted_its_own_by_force(
    tmp_path,
):
    deleting = (*settings(tmp_path), "commitlog.release_timeout_ms=0")
    with Pair(tmp_path, rooms=ROOMS, both=deleting) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "shared", 0, 300)
            pair.caught_up()
            pair.wire.hold()
            send(client, "lost", 300, 60)
            until(lambda: in_tier(tmp_path) == in_log(client), "the master has uploaded")
        pair.master.kill(*pair.rooms)
        pair.slave.kill("tier")
        with promoted(pair) as client:
            for number in range(40):
                client.send_message(Message("t", b"kept" + bytes(5_000), queue_id=number % 2))
            end = client.log_state().appended_offset
            request = DeleteBelowRequest(offset=end - end % SEGMENT, max_segments=100, urgent=True)
            until(
                lambda: pair.slave.log.DeleteBelow(request).minimum_offset == request.offset,
                "the full disk's segments go",
            )
            pair.slave.start(["tier"])
            ends = {("t", 0): 170, ("t", 1): 170}
            until(
                lambda: {key: end for key, (_, end) in Tier(tmp_path).messages().items()} == ends,
                "the slave has uploaded what it has",
            )
            found = in_tier(tmp_path)
            assert not [place for place, body in found.items() if body.startswith(b"lost")]
            # What is in parts without any of the old master's own stays.
            shared = {place for place, body in found.items() if body.startswith(b"shared")}
            assert shared >= {(queue, offset) for queue in (0, 1) for offset in range(50)}
            assert in_log(client).items() <= found.items()
    assert Tier(tmp_path).faults() == []


def test_a_slave_that_never_met_the_masters_last_start_continues_in_its_tier(tmp_path):
    with Pair(tmp_path, rooms=ROOMS, both=settings(tmp_path)) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "shared", 0, 40)
        pair.caught_up()
        pair.wire.hold()
        pair.master.kill(*pair.rooms)
        pair.master.start(pair.rooms)
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "lost", 40, 60)
            until(lambda: in_tier(tmp_path) == in_log(client), "the master has uploaded")
        pair.master.kill(*pair.rooms)
        with promoted(pair) as client:
            send(client, "kept", 40, 40, step=2)
            until(lambda: in_tier(tmp_path) == in_log(client), "the tier is the new log's")
            assert len(in_tier(tmp_path)) == 60
    assert Tier(tmp_path).faults() == []


def test_a_slave_lets_nothing_go_for_what_another_brokers_log_has_in_the_tier(tmp_path):
    storage = PosixStorage(RealFiles(tmp_path / "tier"), no_pause)
    names = ("DefaultCluster", "broker-a")
    other = make_number(0, 3, 77)
    record = ProgressObject(*names, run(claim(*names, other), storage))
    run(record.store(other, 1 << 40, 1 << 40), storage)
    with Pair(tmp_path, rooms=ROOMS, both=settings(tmp_path)) as pair:
        pair.start()
        with connect(pair.master.root, retry_timeout_s=60) as client:
            send(client, "first", 0, 40)
        pair.caught_up()
        with connect(pair.slave.root, retry_timeout_s=60) as client:
            until(
                lambda: "another broker's" in client.admin.tier_state().not_writing_reason,
                "the slave's service has looked",
            )
            (follower,) = (one for one in client.log_state().followers if one.name == "tier")
            assert follower.durable_offset == 0
