"""Queues and index files from the log alone are those that the services make of it."""

import random

import pytest
from stratamq_dispatcher.engine import DispatchEngine, EngineSettings
from stratamq_pipeline.jobs.dispatched import log_parts, queue_columns, read_dispatched
from stratamq_pipeline.jobs.output_files import LocalFiles
from stratamq_pipeline.jobs.target import Target
from stratamq_pipeline.rebuild import job as rebuild_job
from stratamq_pipeline.rebuild.index_files import (
    FilePlan,
    IndexGeometry,
    build_file,
    name_files,
    plan_files,
)
from stratamq_pipeline.rebuild.job import RebuildOptions, run_rebuild
from stratamq_pipeline.rebuild.queue_files import write_queues

from stratamq.errors import CorruptionError, InvalidRequestError, NotFoundError
from stratamq.files.real import RealFiles
from stratamq.files.simulated import SimulatedClock, SimulatedWorker
from stratamq.follow.protocol import Event, Opened
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.index_columns import IndexKeys, index_keys
from stratamq.formats.queue_paths import QueueGeometry
from stratamq.formats.queue_units import unit_runs
from stratamq.table.log_files import open_log
from tests.dispatcher.followed_log import WrittenLog
from tests.index.harness import TestLog
from tests.pipeline.job_stores import HERE, PART_BYTES, built_by_services, files_below, sizes
from tests.support.fixtures import ALL_STORES, unpack
from tests.support.index_files import IndexFilesBuilder

spark_test = pytest.mark.spark


def options(root, out, **more) -> RebuildOptions:
    return RebuildOptions(str(root), str(out), geometry=sizes(root), part_bytes=PART_BYTES, **more)


@spark_test
@pytest.mark.parametrize("name", ALL_STORES)
def test_a_rebuild_is_what_the_services_build(name, spark, tmp_path):
    expected = built_by_services(name, tmp_path / "services")
    root = unpack(name, tmp_path)
    summary = run_rebuild(options(root, tmp_path / "out"), HERE)
    made = files_below(tmp_path / "out", "consumequeue", "index")
    assert made.keys() == expected.keys()
    assert made == expected
    assert summary.facts["units"] > 100
    assert summary.facts["items"] > 100
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


@spark_test
def test_a_run_that_was_broken_off_continues_with_what_is_left(spark, tmp_path, monkeypatch):
    root = unpack("4.9.8-small-clean", tmp_path)

    def broken(*_):
        raise OSError("the machine went away")

    with monkeypatch.context() as patched:
        patched.setattr(rebuild_job, "index_files", broken)
        with pytest.raises(OSError, match="went away"):
            run_rebuild(options(root, tmp_path / "out"), HERE)
    assert not (tmp_path / "out").exists()
    steps: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(rebuild_job, "dispatched", broken)
        patched.setattr(rebuild_job, "queue_files", broken)
        summary = run_rebuild(options(root, tmp_path / "out"), HERE, steps.append)
    assert summary.facts["went_on"]
    assert "reading the log" not in steps
    made = files_below(tmp_path / "out", "consumequeue", "index")
    theirs = files_below(root, "consumequeue", "index")
    assert len(made) == len(theirs)
    assert {k: v for k, v in made.items() if k[0] == "c"} == {
        k: v for k, v in theirs.items() if k[0] == "c"
    }


@spark_test
def test_damage_ends_the_job_with_its_place_and_publishes_nothing(spark, tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    segment = min((root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[90:92] = bytes(byte ^ 0xFF for byte in content[90:92])
    segment.write_bytes(content)
    with pytest.raises(CorruptionError, match="the log is damaged at offset 0"):
        run_rebuild(options(root, tmp_path / "out"), HERE)
    assert not (tmp_path / "out").exists()


@spark_test
def test_an_empty_store_gives_empty_directories(spark, tmp_path):
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    summary = run_rebuild(RebuildOptions(str(root), str(tmp_path / "out")), HERE)
    assert summary.facts["units"] == summary.facts["items"] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["consumequeue", "index"]


def test_a_dry_run_touches_nothing_and_needs_no_spark(tmp_path):
    root = unpack("4.9.8-small-clean", tmp_path)
    summary = run_rebuild(options(root, tmp_path / "out", dry_run=True), HERE)
    assert summary.facts["end_offset"] == open_log(root).end
    assert [path.name for path in tmp_path.iterdir()] == [root.name]


def test_what_cannot_be_rebuilt_is_refused_at_once(tmp_path):
    with pytest.raises(NotFoundError):
        run_rebuild(RebuildOptions(str(tmp_path / "none"), str(tmp_path / "out")), HERE)
    root = unpack("4.9.8-small-clean", tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(InvalidRequestError, match="fresh directory"):
        run_rebuild(options(root, tmp_path / "there"), HERE)
    with pytest.raises(InvalidRequestError, match="--index-slots"):
        run_rebuild(RebuildOptions(str(root), str(tmp_path / "out")), HERE)


def test_left_overs_of_another_job_are_thrown_away(tmp_path):
    target = Target(LocalFiles(tmp_path / "out"))
    assert not target.begin({"end": 1})
    target.finish("rows", {"count": 3})
    again = Target(LocalFiles(tmp_path / "out"))
    assert again.begin({"end": 1})
    assert again.finished("rows") == {"count": 3}
    assert not again.begin({"end": 2})
    assert again.finished("rows") is None


# --- queues that go back, begin in the middle, roll files: without Spark ---


def put_at_random(log, chance: random.Random) -> None:
    """Messages to three queues; now and then a queue's offsets go back, or it begins high."""
    for _ in range(chance.randrange(1, 80)):
        queue = chance.randrange(3)
        expected = log.next_queue_offset.get(("t", queue))
        offset = expected
        if expected is None:
            offset = chance.choice((0, 0, 3, 17, 40))
        elif chance.random() < 0.08:
            offset = chance.randrange(expected + 1)
        log.put("t", queue, b"x" * chance.randrange(60), tags=chance.choice("AB"),
                queue_offset=offset)  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_any_log_gives_the_queue_files_of_the_dispatcher(seed, tmp_path):
    chance = random.Random(seed)
    root = tmp_path / "store"
    root.mkdir()
    files = RealFiles(root)
    log = WrittenLog(files, 2048)
    put_at_random(log, chance)
    clock, worker = SimulatedClock(), SimulatedWorker(random.Random(1))
    engine = DispatchEngine(files, EngineSettings(queue_file_bytes=160), worker, clock)
    engine.load()
    engine.fold.opened(Opened(1, 0, 0, 0, log.end, log.end, log.segment_bytes))
    for begin, end in log.ranges(0, log.end, 1 << 20):
        for _ in engine.fold.apply(Event(1, begin, end, log.end, log.end, 0)):
            pass
    for _ in range(3):
        clock.advance_ms(1000)
        engine.tick()
        worker.run_until_idle()

    batches = [
        batch
        for number, part in enumerate(open_log(root).parts(part_bytes=chance.randrange(300, 3000)))
        for batch in read_dispatched(number, part, rebuild_job.FrameReading())
    ]
    runs = [run for batch in batches for run in unit_runs(queue_columns(batch))]
    runs.sort(key=lambda run: run.queue_id)  # stable: as the shuffle gives them
    (tmp_path / "made").mkdir()
    rows = list(write_queues(iter(runs), tmp_path / "made", tmp_path, QueueGeometry.of_bytes(160)))
    made = files_below(tmp_path / "made", "consumequeue")
    assert made == files_below(root, "consumequeue")
    assert sum(row["files"] for row in rows) == len(made)


def test_a_gap_in_queue_offsets_is_an_error(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    log = WrittenLog(RealFiles(root))
    log.put("t", 0)
    log.put("t", 0, queue_offset=5)
    (part,) = open_log(root).parts()
    (batch,) = read_dispatched(0, part, rebuild_job.FrameReading())
    runs = unit_runs(queue_columns(batch))
    with pytest.raises(CorruptionError, match="continues with 5"):
        list(write_queues(iter(runs), tmp_path / "made", tmp_path, QueueGeometry.of_bytes(160)))


@pytest.mark.parametrize("seed", range(25))
def test_files_built_apart_are_those_built_one_after_the_other(seed, tmp_path):
    chance = random.Random(seed)
    geometry = IndexGeometry(chance.choice((1, 4, 16)), chance.choice((2, 3, 8, 30)))
    parts: dict[int, IndexKeys] = {}
    builder = IndexFilesBuilder(geometry.slots, geometry.items)
    root = tmp_path / "store"
    root.mkdir()
    log = TestLog(RealFiles(root))
    log.fill(chance.randrange(1, 60), seed, keyless=seed == 3)
    for number, event in enumerate(log.events(0, 1, count=chance.randrange(1, 9))):
        base = event.start - event.start % log.segment_bytes
        raw = log.files.open(f"commitlog/{base:020d}").read(
            event.start - base, event.end - event.start
        )
        parts[number] = index_keys(dispatch_columns(raw, event.start, event.lengths))
        builder.put(parts[number])
    counts = {number: len(keys) for number, keys in parts.items() if len(keys)}
    plans = plan_files(counts, geometry.items_per_file)
    chance.shuffle(plans)
    made = {}
    for plan in plans:
        row = build_file(plan, lambda number: iter([parts[number]]), geometry, tmp_path)
        made[plan.number] = (row["beginTimestamp"], (tmp_path / str(plan.number)).read_bytes())
    contents = [made[number][1] for number in sorted(made)]
    assert contents == builder.files()
    names = name_files([made[number][0] for number in sorted(made)])
    assert names == sorted(set(names))


def test_a_file_of_items_in_several_parts_knows_them_all():
    assert plan_files({0: 3, 2: 1, 5: 10}, 7) == [
        FilePlan(0, (0, 2, 5), 0),
        FilePlan(1, (5,), 3),
    ]
    assert plan_files({0: 4, 1: 4}, 4) == [FilePlan(0, (0,), 0), FilePlan(1, (0, 1), 4)]
    assert plan_files({}, 4) == []


@spark_test
def test_each_part_is_a_task_of_its_own(spark, tmp_path):
    log = open_log(unpack("4.9.8-small-clean", tmp_path))
    parts = log_parts(spark, log, PART_BYTES)
    assert parts.rdd.glom().map(len).collect() == [1] * len(log.parts(part_bytes=PART_BYTES))


@spark_test
@pytest.mark.parametrize(
    ("stage", "without", "what"),
    [
        ("queue_files", lambda real: lambda rows, *rest: real(rows.where("queueId > 0"), *rest),
         "messages"),
        ("index_files", lambda real: lambda s, rows, plans, *rest: real(s, rows, plans[1:], *rest),
         "index items"),
    ],
)  # fmt: skip
def test_what_was_handed_out_and_did_not_come_back_is_not_published(
    stage, without, what, spark, tmp_path, monkeypatch
):
    root = unpack("4.9.8-small-clean", tmp_path)
    monkeypatch.setattr(rebuild_job, stage, without(getattr(rebuild_job, stage)))
    with pytest.raises(InvalidRequestError, match=rf"\d+ {what} were handed out, \d+ came back"):
        run_rebuild(options(root, tmp_path / "out"), HERE)
    assert not (tmp_path / "out").exists()
