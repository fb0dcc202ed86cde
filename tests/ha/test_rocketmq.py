"""Replication with the real RocketMQ: its slave follows our master, our slave follows its master.

Both stop and resume in between, segments roll, and in the end both directories are equal byte for
byte, and RocketMQ reports the same for both.
"""

from pathlib import Path

import pytest
from stratamq_bench.ports import free_port
from stratamq_torture.processes.wire import Wire

from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, segments, until
from tests.support import rocketmq
from tests.support.brokers import COMMITLOG, DISPATCHER, HA, INDEX, Broker, geometry_settings
from tests.support.fixtures import Geometry
from tests.support.rocketmq import Running, dump

pytestmark = pytest.mark.java

SIZES = Geometry(log_bytes=SEGMENT, queue_units=300, slots=500, items=2_000)
SAID = ("frame", "queue", "message", "query")
each_version = pytest.mark.parametrize("version", rocketmq.VERSIONS)


def sizes() -> dict[str, int]:
    return {
        "log_bytes": SIZES.log_bytes,
        "queue_units": SIZES.queue_units,
        "slots": SIZES.slots,
        "items": SIZES.items,
    }


def on_disk(root: Path) -> dict[str, bytes]:
    contents = {p.name: p.read_bytes() for p in sorted((root / "commitlog").iterdir())}
    return {name: raw for name, raw in contents.items() if raw.strip(b"\0")}


def dumped_by_rocketmq(version: str, root: Path, scratch: Path) -> list[dict]:
    """But for queries by tag: RocketMQ 5 indexes tags of its own, and our index does not."""
    rocketmq.geometry_file(root, SIZES)
    return [
        {name: value for name, value in line.items() if name != "indexLastPhyOffset"}
        for line in dump(version, root, scratch)
        if line["kind"] in SAID and not str(line.get("key", "")).startswith("T#")
    ]


@each_version
def test_its_slave_follows_our_master(version, tmp_path):
    theirs = tmp_path / "theirs"
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX], both=geometry_settings(SIZES)) as pair:
        pair.start_master()
        pair.send(25)
        for part, more in enumerate((0, 150, 1)):
            pair.send(more)
            end = log_status(pair.master).appended_offset
            with Running(
                version,
                tmp_path / f"run{part}",
                "slave",
                str(theirs),
                master=pair.wire.address,
                until_offset=end,
                for_ms=60_000,
                heartbeat_ms=500,
                **sizes(),
            ) as slave:
                until(
                    lambda end=end: [
                        one
                        for one in ha_status(pair.master).slaves
                        if one.acknowledged_offset == end and one.name == ""
                    ],
                    "RocketMQ's slave acknowledges everything",
                )
                done = slave.finish()[-1]
            assert (done["kind"], done["maxPhyOffset"]) == ("done", end)
        assert end > 2 * SEGMENT
        pair.master.stop()
        assert on_disk(theirs) == segments(pair.master)
        ours = dumped_by_rocketmq(version, pair.master.root, tmp_path / "dump-ours")
        assert dumped_by_rocketmq(version, theirs, tmp_path / "dump-theirs") == ours


@each_version
def test_our_slave_follows_its_master(version, tmp_path):
    theirs = tmp_path / "theirs"
    port = free_port()
    wire = Wire(f"127.0.0.1:{port}")
    settings = [
        *geometry_settings(SIZES),
        "commitlog.role=SLAVE",
        f"ha.master={wire.address}",
        "ha.master_kind=ROCKETMQ",
        "ha.replication_address=127.0.0.1:0",
        "ha.reconnect_longest_ms=200",
    ]
    with Broker(tmp_path / "ours", tmp_path / "logs", settings) as broker:
        broker.start([COMMITLOG, DISPATCHER, INDEX, HA])
        with Running(
            version,
            tmp_path / "run",
            "master",
            str(theirs),
            ha_port=port,
            scenario="mixed",
            seed=3,
            steps=150,
            pause_ms=20,
            wait_ms=2_000,
            linger_ms=60_000,
            heartbeat_ms=500,
            **sizes(),
        ) as master:
            until(lambda: log_status(broker).appended_offset > SEGMENT // 2, "it gets something")
            wire.cut()
            until(lambda: log_status(broker).appended_offset > SEGMENT, "and more after a cut")
            broker.kill(COMMITLOG)
            broker.start([COMMITLOG])
            done = master.finish()[-1]
        assert done["kind"] == "done"
        until(
            lambda: log_status(broker).appended_offset == done["maxPhyOffset"],
            "our slave has everything",
        )
        broker.stop()
        wire.close()
        assert segments(broker) == on_disk(theirs)
        wanted = dumped_by_rocketmq(version, theirs, tmp_path / "dump-theirs")
        assert dumped_by_rocketmq(version, broker.root, tmp_path / "dump-ours") == wanted
