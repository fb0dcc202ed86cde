"""The kernel in C gives the Arrow columns that Python gives, for properties of every kind."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratamq
from stratamq.formats.columns import columns_at
from stratamq.formats.frame import encode
from stratamq.table.decode import Decoder
from tests.formats.test_kernel import TEXTS, built, lay
from tests.support.fixtures import ALL_STORES, unpack
from tests.support.kernels import agree
from tests.table.test_decode import FRAMES


def decoded(parts: list[bytes], columns: tuple[str, ...] = ()) -> list[object]:
    data, starts, sizes = lay(parts)
    raw = np.frombuffer(data, np.uint8)
    decoder = Decoder(columns) if columns else Decoder()
    (batch,) = decoder.batches(raw, columns_at(raw, starts, sizes))
    batch.validate(full=True)
    return batch.to_pylist()


@settings(max_examples=60)
@given(st.lists(FRAMES, min_size=1, max_size=20))
def test_frames_of_any_kind(rows):
    agree(lambda: decoded([encode(**row) for row in rows]))


@settings(max_examples=150)
@given(st.lists(TEXTS, min_size=1, max_size=20), st.sampled_from(["properties", "tags", "keys"]))
def test_properties_of_any_text(texts, column):
    parts = [built(text, body=b"b" * number) for number, text in enumerate(texts)]
    agree(lambda: decoded(parts, (column, "body")))


@pytest.mark.parametrize("count", [64, 65, 4000])
def test_more_items_than_the_kernel_compares(count):
    """Names are compared with each other, but no more than so many of them."""
    text = b"\x02".join(b"n%d\x01v" % number for number in range(count))
    parts = [built(b"TAGS\x01x\x02TAGS\x01y"), built(text), built(b"KEYS\x01" + b"k " * count)]
    rows = agree(lambda: decoded(parts))
    assert [len(row["properties"]) for row in rows] == [1, count, 1]
    assert len(rows[2]["keys"]) == count


@pytest.mark.parametrize("store", ALL_STORES)
@pytest.mark.parametrize("verify", [True, False])
def test_a_scan_of_what_rocketmq_wrote(store, verify, tmp_path):
    root = unpack(store, tmp_path)
    scan = stratamq.scan(root, verify=verify)
    assert agree(lambda: scan.to_arrow().to_pylist())
