"""Bodies of more than 2 GiB, compressed to 3 MB: a scan and Spark's reader of a partition give them
in batches of bounded size."""

import pyarrow as pa
import pytest
from stratamq_pipeline.log_view import FilesView
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import read_partition

import stratamq
from stratamq.formats.compression import Compression
from stratamq.formats.frame import encode
from stratamq.table.decode import BATCH_BYTES
from stratamq.table.log_files import open_log
from stratamq.table.selection import Selection
from tests.support.compressing import compress_body

BODY = bytes(4 << 20)
COUNT = 520
HOST = bytes([10, 1, 2, 3, 0, 0, 42, 159])


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    body, flags = compress_body(BODY, Compression.ZLIB)
    path = tmp_path_factory.mktemp("log") / f"{0:020d}"
    fields = {"topic": b"t", "body": body, "born_host": HOST, "store_host": HOST}
    size = len(encode(**fields))
    with path.open("wb") as file:
        for number in range(COUNT):
            at = number * size
            file.write(encode(**fields, sys_flag=flags, queue_offset=number, physical_offset=at))
    return path


def test_a_scan_gives_them_in_batches_of_bounded_size(segment):
    check(stratamq.scan([segment], columns=("queueOffset", "body"), decompress=True))


def test_sparks_reader_does_too(segment):
    view = FilesView(open_log([segment]))
    options = SourceOptions(str(segment), decompress=True)
    (piece,) = view.pieces(0, view.end, view.end, Selection())
    check(read_partition(piece, options, ("queueOffset", "body")))


def check(batches):
    before = pa.total_allocated_bytes()
    offsets = []
    total = 0
    for batch in batches:
        offsets += batch.column(0).to_pylist()
        size = batch.column(1).nbytes
        assert size <= BATCH_BYTES + 64
        assert pa.total_allocated_bytes() - before < 4 * BATCH_BYTES
        total += size
    assert offsets == list(range(COUNT))
    assert total > 2 << 30
