"""`pipeline offload` writes what `tier backfill` writes, once, whatever is run twice."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stratamq_pipeline.jobs.dispatched import log_parts, spark_schema
from stratamq_pipeline.offload import job
from stratamq_pipeline.offload.committing import RECORDS, Offload, commit_queues, read_records
from stratamq_pipeline.offload.job import OffloadOptions, offloaded, read_all_lives, run_offload
from stratamq_pipeline.same_file import log_for_workers

from stratamq.cli import __main__ as command_line
from stratamq.errors import InvalidRequestError, NotFoundError, NotWritableError
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import OFFLINE_GENERATION
from tests.pipeline.job_stores import HERE
from tests.pipeline.tiers import BROKER, CLUSTER, STORE, cut_log, in_tier, uploaded
from tests.support import s3_servers
from tests.support.fixtures import ALL_STORES, expected, unpack

PART_BYTES = 40_000


def offload(store, target, **options):
    return run_offload(
        OffloadOptions(str(store), str(target), part_bytes=PART_BYTES, **options), HERE
    )


def objects(target: Path) -> dict[str, bytes]:
    """Content by path, without the locks of a directory."""
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file() and path.relative_to(target).parts[0] != "stratamq"
    }


def content(target) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """First and end offset, messages and bytes by queue; no queue has a fault."""
    found = {}
    with open_storage(str(target)) as storage:
        for place in run(queues_of(CLUSTER, BROKER), storage):
            one = run(verify_queue(place), storage)
            assert one.faults == ()
            found[place.topic, place.queue_id] = one.first, one.end, one.messages, one.bytes
    return found


@pytest.mark.parametrize("name", ALL_STORES)
def test_it_writes_the_objects_that_a_backfill_writes(spark, name, tmp_path):
    """Object by object: the store's messages are one batch of each queue in both."""
    store = unpack(name, tmp_path)
    summary = offload(store, tmp_path / "spark")
    assert objects(tmp_path / "spark") == objects(uploaded(store, tmp_path / "backfill"))
    lines = [line for line in expected(name, "message") if in_tier(line)]
    assert summary.facts["messages_added"] == summary.facts["messages_in_tier"] == len(lines)
    again = offload(store, tmp_path / "spark")
    assert again.facts["messages_added"] == 0


def test_what_is_missing_is_added(spark, tmp_path):
    store = unpack(STORE, tmp_path)
    cut = cut_log(store, tmp_path / "cut", 1)
    first = offload(cut, tmp_path / "spark").facts["messages_added"]
    second = offload(store, tmp_path / "spark").facts["messages_added"]
    assert min(first, second) > 0
    assert content(tmp_path / "spark") == content(uploaded(store, tmp_path / "backfill"))


def test_two_tasks_of_each_queue_side_by_side_do_no_harm(spark, tmp_path, monkeypatch):
    """As Spark's speculation runs them."""
    store = unpack(STORE, tmp_path)

    def twice(session, log, work, part_bytes):
        one = offloaded(session, log, work, part_bytes)
        return one.unionByName(offloaded(session, log, work, part_bytes))

    monkeypatch.setattr(job, "offloaded", twice)
    summary = offload(store, tmp_path / "tier")
    assert content(tmp_path / "tier") == content(uploaded(store, tmp_path / "backfill"))
    assert summary.facts["messages_added"] == summary.facts["messages_in_tier"]


def test_a_task_that_ends_half_way_and_two_that_take_its_place_do_no_harm_in_a_bucket(
    spark, tmp_path, monkeypatch
):
    """The executors' function, in threads that have the bucket's credentials."""
    store = unpack(STORE, tmp_path)
    log = log_for_workers(str(store))
    with s3_servers.moto_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT", server.endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_servers.ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_servers.SECRET_KEY)
        target = f"s3://{server.new_bucket()}/tiers"
        with open_storage(target, for_writing="x") as storage:
            epoch = run(claim(CLUSTER, BROKER, OFFLINE_GENERATION), storage)
        work = Offload(target, CLUSTER, BROKER, epoch)
        rows = log_parts(spark, log).mapInArrow(read_records(work), spark_schema(RECORDS))
        table = rows.orderBy("topic", "queueId", "physicalOffset").toArrow().cast(RECORDS)

        def commit(messages):
            batches = table.slice(0, messages).to_batches(max_chunksize=7)
            return list(commit_queues(work)(iter(batches)))

        commit(len(table) // 2)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(commit, len(table)) for _ in range(2)]:
                done.result()
        assert content(target) == content(uploaded(store, tmp_path / "backfill"))


def test_the_last_life_of_a_queue_is_found_over_parts_as_in_one_pass(spark, tmp_path):
    from stratamq.cli.tier_backfill import _look_through

    log = log_for_workers(str(unpack("4.9.8-small-clean", tmp_path)))
    lives = read_all_lives(spark, log, 10_000)
    assert lives.found == _look_through(log.parts()).found
    assert len(log.parts(part_bytes=10_000)) > len(log.parts())


def test_topics_that_are_not_named_stay_out(spark, tmp_path):
    store = unpack(STORE, tmp_path)
    offload(store, tmp_path / "tier", topics=("orders",))
    assert {topic for topic, _ in content(tmp_path / "tier")} == {"orders"}
    with pytest.raises(NotFoundError, match="no message of nothing"):
        offload(store, tmp_path / "tier", topics=("nothing",))


def test_a_tier_that_a_service_writes_is_left_to_it(spark, tmp_path):
    store = unpack(STORE, tmp_path)
    with open_storage(str(tmp_path / "tier")) as storage:
        run(claim(CLUSTER, BROKER, 7), storage)
    with pytest.raises(NotWritableError, match="has claimed the tier"):
        offload(store, tmp_path / "tier")


def test_a_directory_that_another_process_writes_is_refused(spark, tmp_path):
    from stratamq.tier.containers.place import broker_folder

    store = unpack(STORE, tmp_path)
    folder = broker_folder(CLUSTER, BROKER)
    with (
        open_storage(str(tmp_path / "tier"), for_writing=folder),
        pytest.raises(NotWritableError),
    ):
        offload(store, tmp_path / "tier")


def test_what_cannot_be_is_refused(tmp_path):
    store = unpack(STORE, tmp_path)
    with pytest.raises(InvalidRequestError, match="in the store itself"):
        offload(store, store / "tier")
    with pytest.raises(NotFoundError):
        offload(tmp_path / "nowhere", tmp_path / "tier")


def test_the_command_writes_rocketmqs_metadata_too(spark, tmp_path, capsys):
    store, words = unpack(STORE, tmp_path), ["pipeline", "offload", "--output", "json"]
    places = ["--to", str(tmp_path / "tier"), "--export", str(tmp_path / "local")]
    assert command_line.run([*words, str(store), *places]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["messages_added"] == 300
    assert list((tmp_path / "local" / "config").iterdir())
