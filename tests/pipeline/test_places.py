"""Several logs as one table: lists, patterns, URLs, shards, and brokers that ask who calls."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from stratamq_pipeline.batch import BatchReader
from stratamq_pipeline.damage import DAMAGE_SCHEMA, DamageReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.places import log_name, logs_of
from stratamq_pipeline.sink import SinkOptions
from stratamq_pipeline.source import StrataMQDataSource
from stratamq_pipeline.stream import StreamReader
from stratamq_pipeline.stream_of_logs import StreamOfLogs
from stratamq_pipeline.table_columns import TableColumns

from stratamq.client import connect
from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.rpc import discovery
from tests.pipeline.written_log import WrittenLog
from tests.security.conftest import made
from tests.support.brokers import COMMITLOG, Broker
from tests.support.shards import NAMES, Shards

COLUMNS = TableColumns.named("topic", "queueId", "queueOffset")
ALL = ReadAllAvailable()


@pytest.fixture
def logs(tmp_path):
    """Topic a is in one, topic b in the other, in segments of 4096 bytes."""
    found = [WrittenLog(tmp_path / "stores" / name) for name in "xy"]
    for log, topic, count in zip(found, "ab", (200, 300), strict=True):
        log.put_many(count, topic)
    return found


def parse(*paths, **options):
    return SourceOptions.parse({"paths": json.dumps([str(path) for path in paths])} | options)


def rows_of(reader, partitions):
    batches = (batch for part in partitions for batch in reader.read(part))
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def rows(options):
    reader = BatchReader(options, COLUMNS)
    return sorted(rows_of(reader, reader.partitions()))


def everything(logs):
    return sorted(row for log in logs for row in log.stored)


def test_lists_patterns_and_urls_of_directories(logs, tmp_path, monkeypatch):
    x, y = (log.root for log in logs)
    assert rows(parse(x, y)) == everything(logs)
    assert rows(parse(tmp_path / "stores" / "[x-y]")) == everything(logs)
    assert rows(parse(f"file://{x}", f"file:{y}")) == everything(logs)
    assert rows(SourceOptions.parse({"path": f"file://localhost{x}"})) == everything(logs[:1])
    assert rows(parse(x, tmp_path / "stores" / "*", f"file://{x}")) == everything(logs)
    monkeypatch.chdir(tmp_path / "stores")
    assert rows(parse("x", "./y/../y", x)) == everything(logs)
    assert rows(parse(x, y, subscribe="b")) == everything(logs[1:])
    with pytest.raises(NotFoundError, match="nothing matches"):
        rows(parse(tmp_path / "*" / "nothing*"))


def test_segment_files_are_one_log(logs):
    files = sorted((logs[0].root / "commitlog").iterdir())
    assert len(files) > 2
    assert rows(parse(logs[0].root / "commitlog" / "0*")) == everything(logs[:1])
    some = rows(parse(*files[:2]))
    places = [logs[0].places[row] for row in some]
    assert sorted(places) == [at for at in logs[0].places.values() if at < 2 * 4096]
    with pytest.raises(InvalidRequestError, match="a store's directory, not segment files"):
        log_name(logs_of(parse(*files[:2]))[0])


def test_segment_files_of_each_directory_are_a_log(logs, tmp_path):
    assert rows(parse(tmp_path / "stores" / "*" / "commitlog" / "*")) == everything(logs)
    (tmp_path / "again").symlink_to(tmp_path / "stores" / "x")
    more = tmp_path / "*" / "commitlog" / "*"
    assert rows(parse(more, tmp_path / "stores" / "*" / "commitlog" / "*")) == everything(logs)


def test_partitions_are_counted_over_all_logs(logs):
    options = parse(*(log.root for log in logs), minPartitions="60")
    assert 60 <= len(BatchReader(options, COLUMNS).partitions()) < 90


def test_offsets_of_single_queues_are_of_one_log(logs):
    options = parse(*(log.root for log in logs), startingOffsets='{"a": {"0": 1}}')
    with pytest.raises(InvalidRequestError, match="offsets of single queues are of one log"):
        rows(options)


def test_damage_is_found_in_each_log(logs):
    options = parse(*(log.root for log in logs), table="damage")
    for log in logs:
        with open(log.root / "commitlog" / f"{0:020}", "r+b") as file:
            file.seek(log.places[log.stored[15]] + 90)  # in the body
            file.write(b"\xff\xff")
    reader = DamageReader(options, TableColumns(DAMAGE_SCHEMA, DAMAGE_SCHEMA))
    found = {row[0] for row in rows_of(reader, reader.partitions())}
    assert found == {str(log.root / "commitlog" / f"{0:020}") for log in logs}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"paths": "[1"}, "JSON list"),
        ({"paths": '["/a", "/b"]', "tier": "s3://b/p"}, "read with one store's directory"),
        ({"paths": '["/a", "s3://b/p"]'}, "read with one store's directory"),
        ({"paths": '["/a", "h:1"]', "mode": "permissive"}, "a broker gives no damaged"),
    ],
)
def test_impossible_paths_are_refused(options, reason):
    with pytest.raises(InvalidRequestError, match=reason):
        SourceOptions.parse(options)


def stream_of(*paths, **options):
    given = {"startingOffsets": "earliest"} | options
    return StreamOfLogs(logs_of(parse(*paths, **given)), COLUMNS)


def follow(reader, start):
    """Batches until nothing is left, each planned twice alike, as after a failure."""
    batches = []
    while True:
        limit = reader.getDefaultReadLimit()
        end = json.loads(json.dumps(reader.latestOffset(start, limit)))
        if end == start:
            return batches, end
        batches.append(rows_of(reader, reader.partitions(start, end)))
        assert rows_of(reader, reader.partitions(start, end)) == batches[-1]
        start = end


def test_a_stream_of_several_logs_has_a_place_in_each(logs):
    x, y = (str(log.root) for log in logs)
    reader = stream_of(x, y, maxOffsetsPerTrigger="199")
    batches, end = follow(reader, reader.initialOffset())
    assert sorted(row for batch in batches for row in batch) == everything(logs)
    assert [len(batch) for batch in batches] == [200, 200, 100]
    assert end["logs"].keys() == {x, y}
    assert end["logs"][y]["log"] == logs[1].end
    logs[1].put("late", 3)
    again = stream_of(y, x)
    assert follow(again, end)[0] == [[("late", 3, 0)]]
    assert set(again.reportLatestOffset()["logs"]) == {x, y}
    again.stop()


def test_a_log_that_joins_a_stream_is_read_from_its_beginning(logs, tmp_path):
    x, y = (str(log.root) for log in logs)
    third = WrittenLog(tmp_path / "stores" / "z")
    third.put_many(3, "c")
    two = stream_of(x, y)
    _, end = follow(two, two.initialOffset())
    three = stream_of(tmp_path / "stores" / "*")
    batches, last = follow(three, end)
    assert batches[-1] == third.stored
    with pytest.raises(InvalidRequestError, match=r"of .*/z, too, which is not among the logs"):
        two.latestOffset(last, ALL)
    one = StreamReader(parse(x), COLUMNS)
    with pytest.raises(InvalidRequestError, match="the checkpoint is of several logs"):
        one.latestOffset(end, ALL)
    with pytest.raises(InvalidRequestError, match="the checkpoint is of a single log"):
        two.latestOffset(one.latestOffset(one.initialOffset(), ALL), ALL)


def test_spark_gets_a_stream_of_one_log_or_of_several(logs):
    kinds = []
    for chosen in (logs[:1], logs):
        paths = json.dumps([str(log.root) for log in chosen])
        source = StrataMQDataSource({"paths": paths})
        kinds.append(type(source.streamReader(source.schema())))
    assert kinds == [StreamReader, StreamOfLogs]


def test_shards_behind_an_address_are_read_together_or_by_name(tmp_path):
    with Shards(tmp_path) as both:
        for name in NAMES:
            with connect(both[name].root) as client:
                client.send(f"of-{name}", b"x", queue_id=0)
        of_a, of_b = [("of-a", 0, 0)], [("of-b", 0, 0)]
        assert rows(SourceOptions.parse({"path": both.address})) == of_a + of_b
        assert rows(SourceOptions.parse({"path": both.address, "broker": "b"})) == of_b
        first, second = both.address.split(",")
        assert rows(parse(first, second)) == of_a + of_b
        # Whatever addresses name a log, it is read once.
        assert rows(parse(first, both.address, second, f"commitlog={first}")) == of_a + of_b
        reader = stream_of(both.address)
        batches, end = follow(reader, reader.initialOffset())
        assert [sorted(batch) for batch in batches] == [of_a + of_b]
        assert end["logs"].keys() == set(NAMES)
        with connect(both["b"].root) as client:
            client.send("of-b", b"x", queue_id=0)
        assert follow(stream_of(both.address), end)[0] == [[("of-b", 0, 1)]]
        reader.stop()


def test_options_name_certificates_and_tokens(tmp_path):
    pki = made(tmp_path / "pki", "alice")
    with Broker(tmp_path / "store", tmp_path / "logs", pki.settings()) as broker:
        broker.start([COMMITLOG])
        with connect(broker.root) as client:
            client.send("t", b"x", queue_id=0)
        address = discovery.read(broker.root, COMMITLOG).address
        access = {"tlsCa": f"{pki.directory}/ca.pem"}
        access |= {"tlsCertificate": f"{pki.directory}/alice.pem"}
        access |= {"tlsKey": f"{pki.directory}/alice.key"}
        assert rows(SourceOptions.parse({"path": address} | access)) == [("t", 0, 0)]
        token = {"tlsCa": access["tlsCa"], "token": "a-token"}
        options = SourceOptions.parse({"path": address} | token)
        assert "a-token" not in repr(options)
        assert options.access == token
        assert SinkOptions.parse({"path": address, "topic": "t"} | token, ["body"]).access == token
