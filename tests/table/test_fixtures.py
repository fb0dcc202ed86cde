"""The table of RocketMQ's own stores equals RocketMQ's report of them, row for row."""

import gzip
import hashlib
import json
from datetime import datetime

import pytest

import stratamq
from stratamq.formats.properties import split_keys
from stratamq.table.schema import COLUMNS
from tests.support.fixtures import ALL_STORES, STORES, unpack


@pytest.fixture(scope="module", params=ALL_STORES)
def store(request, tmp_path_factory):
    """The unpacked directory, and RocketMQ's `message` lines by log offset."""
    root = unpack(request.param, tmp_path_factory.mktemp("store"))
    with gzip.open(STORES / f"{request.param}.expected.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    return root, {line["phyOffset"]: line for line in lines if line["kind"] == "message"}


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def host(text: str) -> str:
    """RocketMQ writes address|port."""
    address, _, port = text.rpartition("|")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def test_every_message_is_a_row_and_every_row_a_message(store):
    root, messages = store
    table = stratamq.scan(root).to_arrow()
    assert table.column_names == list(COLUMNS)
    rows = {row["physicalOffset"]: row for row in table.to_pylist()}
    assert len(rows) == len(table)
    assert rows.keys() == messages.keys()
    for offset, row in rows.items():
        line = messages[offset]
        properties = line["properties"]
        assert row["topic"] == line["frameTopic"]
        assert row["queueId"] == line["frameQueueId"]
        assert row["queueOffset"] == line["queueOffset"]
        assert row["msgId"] == line["msgId"]
        assert dict(row["properties"]) == properties
        assert row["tags"] == properties.get("TAGS")
        assert row["keys"] == split_keys(properties.get("KEYS", ""))
        assert row["flag"] == line["flag"]
        assert row["sysFlag"] == line["sysFlag"]
        assert milliseconds(row["bornTimestamp"]) == line["bornTimestamp"]
        assert milliseconds(row["storeTimestamp"]) == line["storeTimestamp"]
        assert row["bornHost"] == host(line["bornHost"])
        assert row["storeHost"] == host(line["storeHost"])
        assert row["reconsumeTimes"] == line["reconsumeTimes"]
        assert row["preparedTransactionOffset"] == line["preparedTransactionOffset"]
        assert row["bodyCrc"] == line["bodyCRC"]
        assert row["size"] == line["size"]
        if "body" in line:
            assert row["body"].hex() == line["body"]
        else:
            assert hashlib.sha256(row["body"]).hexdigest() == line["bodySha256"]


def test_the_rows_come_in_the_order_of_the_log(store):
    root, _ = store
    offsets = stratamq.scan(root, columns=["physicalOffset"]).to_arrow()["physicalOffset"]
    assert offsets.to_pylist() == sorted(offsets.to_pylist())
