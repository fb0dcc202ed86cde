"""The property `PSEQ`: the producer that sent a message, and the number it gave it.

    off   size   content
    0     4      `PSEQ`
    4     1      0x01
    5     11     the producer's number, 64 bits
    16    8      the sequence, 48 bits

It is the last item of the properties, in front of the record checksum where there is one; no 0x02
follows it otherwise. Digits are of base 64, the most significant first, in ASCII's order
(`-`, `0`…`9`, `A`…`Z`, `_`, `a`…`z`), so that texts compare as their numbers do. To every reader
it is an ordinary property. Ours: RocketMQ has no such name (spec 3.2).

A producer leaves the sequence blank; the log, which receives it with the batch, fills it in.
"""

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from stratamq.formats.columns import FrameColumns, windows
from stratamq.formats.columns_patch import scatter
from stratamq.formats.properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES

PRODUCER_ITEM = "PSEQ"
LARGEST_SEQUENCE = (1 << 48) - 1

_ALPHABET = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_PREFIX = PRODUCER_ITEM.encode() + NAME_VALUE_SEPARATOR
_PRODUCER_DIGITS, SEQUENCE_DIGITS = 11, 8
PRODUCER_ITEM_BYTES = len(_PREFIX) + _PRODUCER_DIGITS + SEQUENCE_DIGITS
assert len(_PREFIX) + _PRODUCER_DIGITS == 16
assert PRODUCER_ITEM_BYTES == 24
_BEFORE_CHECKSUM = PROPERTY_CRC_BYTES + len(ITEM_SEPARATOR)
SEQUENCE_AT = 16

_LETTERS = np.frombuffer(_ALPHABET, np.uint8)
_PAIRS = np.stack([_LETTERS.repeat(64), np.tile(_LETTERS, 64)], 1).view("<u2")[:, 0]
_TWO_DIGITS = [_PAIRS.astype("<u8") << np.uint64(16 * pair) for pair in range(4)]
"""The two digits of each number below 4 096, as they lie there in the word of a sequence: the most
significant two, the next two, and so on."""
_TWO_LETTERS = [bytes(pair) for pair in itertools.product(_ALPHABET, repeat=2)]
_VALUES = np.full(256, 0xFF, np.uint8)
_VALUES[_LETTERS] = np.arange(64)

Bytes = NDArray[np.uint8]
I64 = NDArray[np.int64]


def encode_item(producer: int, sequence: int) -> bytes:
    """Encode the item of one message."""
    return (
        _PREFIX
        + encode_digits(producer, _PRODUCER_DIGITS)
        + encode_digits(sequence, SEQUENCE_DIGITS)
    )


def blank_item(producer: int) -> bytes:
    """Encode the item as a producer sends it."""
    return encode_item(producer, 0)


@functools.lru_cache(1024)
def item_head(producer: int) -> bytes:
    """What stands before the sequence, the same in all items of a producer."""
    return encode_item(producer, 0)[:SEQUENCE_AT]


def encode_sequence(sequence: int) -> bytes:
    """What stands behind `item_head`."""
    return b"".join([_TWO_LETTERS[sequence >> place & 0xFFF] for place in (36, 24, 12, 0)])


def decode_item(value: bytes) -> tuple[int, int] | None:
    """(producer, sequence) of the property's value; None for a value that is none."""
    if len(value) != PRODUCER_ITEM_BYTES - len(_PREFIX) or any(c not in _ALPHABET for c in value):
        return None
    return _number(value[:_PRODUCER_DIGITS]), _number(value[_PRODUCER_DIGITS:])


def encode_digits(number: int, count: int) -> bytes:
    """Encode a number in that many digits."""
    return bytes(_ALPHABET[number >> 6 * place & 63] for place in range(count - 1, -1, -1))


def decode_digits(digits: bytes) -> int | None:
    """Return the number; None for what are no digits."""
    return None if any(c not in _ALPHABET for c in digits) else _number(digits)


def _number(digits: bytes) -> int:
    number = 0
    for digit in digits:
        number = number << 6 | int(_VALUES[digit])
    return number


def before_end(checksum: bool) -> int:
    """How far before a frame's end its item begins, with a record checksum behind it or without."""
    return PRODUCER_ITEM_BYTES + (_BEFORE_CHECKSUM if checksum else 0)


def items_match(
    raw: Bytes, frames: FrameColumns, producers: list[int], counts: I64, *, checksum: bool
) -> NDArray[np.bool_]:
    """For each frame: whether it has room for its producer's item, with any sequence in it.
    `counts`: how many frames each of `producers` has, in order."""
    heads = {producer: item_head(producer) for producer in dict.fromkeys(producers)}
    words = np.frombuffer(b"".join([heads[producer] for producer in producers]), np.uint64)
    first, second = words[0::2], words[1::2]
    if len(heads) == 1:
        first, second = first[:1], second[:1]
    else:
        first, second = first.repeat(counts), second.repeat(counts)
    tail, shape = before_end(checksum), frames.shape
    if shape is not None:
        if shape.properties_length < tail:
            return np.zeros(len(frames), np.bool_)
        at = shape.size - tail
        return (_words(raw, frames, at) == first) & (_words(raw, frames, at + 8) == second)
    room = frames.properties_length >= tail
    found = windows(raw, SEQUENCE_AT)[frames.start + frames.size - tail].view(np.uint64)
    return (found[:, 0] == first) & (found[:, 1] == second) & room


def _words(raw: Bytes, frames: FrameColumns, at: int) -> NDArray[np.uint64]:
    """A view of the eight bytes at `at` in each of frames of one shape."""
    assert frames.shape is not None
    return np.ndarray((len(frames),), np.uint64, raw, at, (frames.shape.size,))


def fill_sequences(raw: Bytes, frames: FrameColumns, sequences: I64, *, checksum: bool) -> None:
    """Write the sequences into frames that `items_match`."""
    high = int(sequences[0]) >> 24
    words = _TWO_DIGITS[3][sequences & 0xFFF]
    words |= _TWO_DIGITS[2][sequences >> 12 & 0xFFF]
    if high == int(sequences.max()) >> 24 == int(sequences.min()) >> 24:
        words |= _TWO_DIGITS[0][high >> 12] | _TWO_DIGITS[1][high & 0xFFF]
    else:
        words |= _TWO_DIGITS[0][sequences >> 36]
        words |= _TWO_DIGITS[1][sequences >> 24 & 0xFFF]
    back, shape = before_end(checksum) - SEQUENCE_AT, frames.shape
    if shape is not None:
        _words(raw, frames, shape.size - back)[:] = words
        return
    scatter(raw, frames.start + frames.size - back, words.view(np.uint8).reshape(-1, 8))


def read_items(raw: Bytes, frames: FrameColumns) -> tuple[I64, NDArray[np.uint64], I64]:
    """(rows that have an item, two words that tell its producer from others, sequences)."""
    ends = frames.start + frames.size
    found = np.zeros(len(frames), np.bool_)
    items = np.zeros((len(frames), PRODUCER_ITEM_BYTES), np.uint8)
    for tail in (before_end(True), before_end(False)):
        rows = np.flatnonzero(~found & (frames.properties_length >= tail))
        if not len(rows):
            continue
        candidates = windows(raw, PRODUCER_ITEM_BYTES)[ends[rows] - tail]
        good = (candidates[:, : len(_PREFIX)] == np.frombuffer(_PREFIX, np.uint8)).all(axis=1)
        good &= (_VALUES[candidates[:, len(_PREFIX) :]] != 0xFF).all(axis=1)
        found[rows[good]] = True
        items[rows[good]] = candidates[good]
    rows = np.flatnonzero(found)
    items = items[rows]
    sequences = np.zeros(len(rows), np.int64)
    for column in range(SEQUENCE_AT, PRODUCER_ITEM_BYTES):
        sequences = sequences << 6 | _VALUES[items[:, column]]
    return rows, items.view(np.uint64)[:, :2], sequences


def producer_of(words: NDArray[np.uint64]) -> int:
    """The producer whose two words these are."""
    return _number(words.tobytes()[len(_PREFIX) :])
