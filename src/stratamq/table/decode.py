"""Frames of the log to Arrow record batches: the one decoder of `scan`, Spark and the broker.

Pure: bytes in, columns out. What is not asked for is not decoded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stratamq.formats import frame_layout as layout
from stratamq.formats import kernel, sysflag
from stratamq.formats.columns import FrameColumns, windows
from stratamq.formats.compression import decompress_body
from stratamq.formats.hosts import decode_host
from stratamq.formats.text import decode_text
from stratamq.formats.text_groups import group_texts
from stratamq.table.property_columns import property_columns
from stratamq.table.schema import COLUMNS, SCHEMA, TIME
from stratamq.table.texts import ascii_rows, binaries, repeated

BATCH_BYTES = 8 << 20
"""The most decompressed bodies of a batch, but for a single larger one."""
_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
"""The two digits of each byte, as they lie in memory."""
_BORN_HOST = 48
_LAST_MS = ((1 << 63) - 1) // 1000
_FROM_PROPERTIES = frozenset(("properties", "tags", "keys"))
assert layout.HEAD.size == _BORN_HOST

I64 = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Decoder:
    """`columns` in the order in which they are wanted; `decompress`: bodies as producers had them,
    a body that is no such stream is a CorruptRecordError."""

    columns: tuple[str, ...] = COLUMNS
    decompress: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([SCHEMA.field(name) for name in self.columns])

    def batches(self, raw: Bytes, frames: FrameColumns) -> Iterator[pa.RecordBatch]:
        """Frames that lie whole in `raw`, as one batch, or with `decompress` as many as keep the
        bodies of each within `BATCH_BYTES`, or one body. CorruptRecordError if one contradicts
        itself."""
        yield from self.unpacked(self.packed(raw, frames))

    def packed(self, raw: Bytes, frames: FrameColumns) -> "Packed":
        """The frames with their bodies as they are stored; `raw` is no longer needed.
        CorruptRecordError."""
        found = property_columns(raw, frames, _FROM_PROPERTIES.intersection(self.columns))
        arrays = []
        for name in self.columns:
            if name in _FROM_PROPERTIES:
                arrays.append(getattr(found, name))
            elif name == "body":
                arrays.append(binaries(raw, frames.body_start, frames.body_length))
            else:
                arrays.append(_PLAIN[name](raw, frames))
        return Packed(pa.RecordBatch.from_arrays(arrays, schema=self.schema), frames.sys_flag)

    def unpacked(self, packed: "Packed") -> Iterator[pa.RecordBatch]:
        """Bodies are decompressed as they are asked for: a few MB may come to GB together."""
        batch, flags = packed
        if (
            not self.decompress
            or "body" not in self.columns
            or not (flags & sysflag.COMPRESSED).any()
        ):
            yield batch
            return
        place = self.columns.index("body")
        first, size = 0, 0
        bodies: list[bytes] = []
        for row, (body, sys_flag) in enumerate(
            zip(batch.column(place), flags.tolist(), strict=True)
        ):
            plain = decompress_body(body.as_py(), sys_flag)
            if bodies and size + len(plain) > BATCH_BYTES:
                yield _with_bodies(batch.slice(first, len(bodies)), place, bodies)
                first, size, bodies = row, 0, []
            bodies.append(plain)
            size += len(plain)
        yield _with_bodies(batch.slice(first, len(bodies)), place, bodies)


class Packed(NamedTuple):
    """A batch whose bodies may be compressed, and the system flags of its rows, which tell."""

    batch: pa.RecordBatch
    sys_flag: NDArray[np.integer[Any]]


def _with_bodies(batch: pa.RecordBatch, place: int, bodies: list[bytes]) -> pa.RecordBatch:
    columns = list(batch.columns)
    columns[place] = pa.array(bodies, pa.binary())
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _topic(raw: Bytes, frames: FrameColumns) -> pa.Array:
    index, names = group_texts(raw, frames.topic_start, frames.topic_length)
    return _numbered(index, [decode_text(name) for name in names])


def _message_id(raw: Bytes, frames: FrameColumns) -> pa.Array:
    host_start, long = _store_host(frames)
    if kernel.NATIVE is not None and not frames.any_v6:
        text = np.empty((len(frames), 32), np.uint8)
        kernel.NATIVE.message_ids(raw, host_start, frames.physical_offset, text)
        return ascii_rows(text)
    offsets = frames.physical_offset.astype(">i8").view(np.uint8).reshape(-1, 8)
    if not frames.any_v6:
        hosts = windows(raw, 8)[host_start[:1] if frames.hosts_alike else host_start]
        digits = np.empty((len(frames), 16), np.uint16)
        digits[:, :8] = _HEX[hosts]
        digits[:, 8:] = _HEX[offsets]
        return ascii_rows(digits.view(np.uint8))
    view = raw.data
    ids = [
        (bytes(view[at : at + (20 if wide else 8)]) + offset.tobytes()).hex().upper()
        for at, wide, offset in zip(host_start.tolist(), long.tolist(), offsets, strict=True)
    ]
    return pa.array(ids, pa.string())


def _born_host(raw: Bytes, frames: FrameColumns) -> pa.Array:
    long = (frames.sys_flag & sysflag.BORN_HOST_V6) != 0
    return _hosts(raw, frames, frames.start + _BORN_HOST, long)


def _store_host(frames: FrameColumns) -> tuple[I64, NDArray[np.bool_]]:
    long = (frames.sys_flag & sysflag.STORE_HOST_V6) != 0
    return frames.store_timestamp_start + 8, long


def _hosts(raw: Bytes, frames: FrameColumns, starts: I64, long: NDArray[np.bool_]) -> pa.Array:
    if frames.hosts_alike and len(frames):
        return repeated([_host(raw[starts[0] : starts[0] + 8].tobytes())], len(frames))
    index, hosts = group_texts(raw, starts, np.where(long, 20, 8))
    return _numbered(index, [_host(host) for host in hosts])


def _host(raw: bytes) -> str:
    host = decode_host(raw)
    address = f"[{host.address}]" if ":" in host.address else host.address
    return f"{address}:{host.port}"


def _numbered(index: NDArray[np.int32], texts: list[str]) -> pa.Array:
    if len(texts) == 1:
        return repeated(texts, len(index))
    return pa.array(texts, pa.string()).take(pa.array(index))


def _times(milliseconds: I64) -> pa.Array:
    """A time that microseconds cannot express becomes the last, or the first, that they can."""
    return pa.array(np.clip(milliseconds, -_LAST_MS, _LAST_MS) * 1000).view(TIME)


def _native(values: NDArray[np.generic], kind: type[np.generic]) -> pa.Array:
    return pa.array(values.astype(kind))


_PLAIN = {
    "topic": _topic,
    "queueId": lambda raw, frames: pa.array(frames.queue_id),
    "queueOffset": lambda raw, frames: pa.array(frames.queue_offset),
    "physicalOffset": lambda raw, frames: pa.array(frames.physical_offset),
    "msgId": _message_id,
    "flag": lambda raw, frames: pa.array(frames.flag),
    "sysFlag": lambda raw, frames: _native(frames.sys_flag, np.int32),
    "bornTimestamp": lambda raw, frames: _times(frames.born_timestamp_ms),
    "bornHost": _born_host,
    "storeTimestamp": lambda raw, frames: _times(frames.store_timestamp_ms),
    "storeHost": lambda raw, frames: _hosts(raw, frames, *_store_host(frames)),
    "reconsumeTimes": lambda raw, frames: pa.array(frames.reconsume_times),
    "preparedTransactionOffset": lambda raw, frames: pa.array(frames.prepared_transaction_offset),
    "bodyCrc": lambda raw, frames: _native(frames.body_crc, np.int32),
    "size": lambda raw, frames: _native(frames.size, np.int32),
}
assert _PLAIN.keys() | _FROM_PROPERTIES | {"body"} == set(COLUMNS)
