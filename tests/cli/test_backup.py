"""A copy of a broker that continues, made as docs/operations.md has it, is a whole store."""

import re
import subprocess
import threading
from pathlib import Path

import pytest

from stratamq.client import connect
from tests.cli.processes import stratamq
from tests.cli.tour import typed
from tests.support.brokers import Broker
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
SMALL = [
    "commitlog.segment_bytes=262144",
    "dispatcher.queue_file_bytes=4000",
    "index.index_slots=100",
    "index.index_items=400",
]
BODY = b"x" * 300


def commands_of_the_page(data: Path, backup: Path) -> list[str]:
    """Those with which it copies `d` to `backup`."""
    found = [step.command for step in typed(PAGE) if " | tar " in step.command]
    assert len(found) == 2
    return [
        re.sub(r"\bbackup\b", str(backup), re.sub(r"-C d\b", f"-C {data}", command))
        for command in found
    ]


@pytest.mark.parametrize("started", [0, 3_000, 20_000])
def test_a_copy_of_a_running_broker_has_all_that_was_acknowledged_before(tmp_path, started):
    backup = tmp_path / "backup"
    backup.mkdir()
    acknowledged, stop, failures = [0], threading.Event(), []

    def produce(client) -> None:
        with client.producer() as producer:
            while not stop.is_set():
                deliveries = [
                    producer.send(
                        "t", b"%d " % (acknowledged[0] + n) + BODY, keys=["k"], queue_id=0
                    )
                    for n in range(50)
                ]
                if not all(one.result(60).stored for one in deliveries):
                    failures.append(acknowledged[0])
                acknowledged[0] += len(deliveries)

    with Broker(tmp_path / "store", tmp_path / "logs", SMALL) as broker:
        broker.start()
        with connect(broker.root) as client:
            loading = threading.Thread(target=produce, args=(client,))
            loading.start()
            until(lambda: acknowledged[0] >= started, "the load runs")
            before = acknowledged[0]
            for command in commands_of_the_page(broker.root, backup):
                subprocess.run(["bash", "-ec", command], check=True, timeout=120)
            stop.set()
            loading.join()
    assert not failures
    marked = stratamq("replica", "restored", data=backup)
    assert marked.returncode == 0, marked.stderr
    with Broker(backup, tmp_path / "logs of the backup", SMALL) as restored:
        restored.start()
        with connect(backup) as client:
            end = client.log_state().appended_offset
            until(lambda: client.admin.dispatch_state().applied_offset >= end, "queues are built")
            numbers = [int(message.body.split()[0]) for message in client.consume("t")]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= before
