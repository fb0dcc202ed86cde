"""The distinct texts among many that lie scattered in one buffer: topics, hosts.

There are few of them as a rule. Each is looked for in all rows at once, eight bytes at a time.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stratamq.formats import kernel
from stratamq.formats.columns import windows

_ROUNDS = 6
"""So many distinct texts of one length are looked for in all rows at once; the rest one by one."""
_WORD = 8
_FEW = 16
"""Rows that are gone through one by one: a record of a service comes alone."""


def group_texts(
    raw: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.int32], list[bytes]]:
    """Number the distinct byte strings at `start`, in the order of their first appearance."""
    if len(start) < _FEW:
        few: dict[bytes, int] = {}
        places = zip(start.tolist(), length.tolist(), strict=True)
        found = [few.setdefault(bytes(raw.data[at : at + width]), len(few)) for at, width in places]
        return np.array(found, np.int32), list(few)
    if kernel.NATIVE is not None and (grouped := _by_kernel(kernel.NATIVE, raw, start, length)):
        return grouped
    index = np.full(len(start), -1, np.int32)
    texts: dict[bytes, int] = {}
    left = np.arange(len(start))
    padded = int(start.min()) >= _WORD
    while padded and len(left) and len(texts) < _ROUNDS:
        row = int(left[0])
        width = int(length[row])
        alike = length[left] == width
        same = left if alike.all() else left[alike]
        index[same] = _numbers_of_equals(raw, start[same], width, same, texts)
        left = left[index[left] < 0]
    singly = zip(left.tolist(), start[left].tolist(), length[left].tolist(), strict=True)
    view = raw.data
    numbers = {text: number for number, text in enumerate(texts)}
    for row, at, width in singly:
        text = bytes(view[at : at + width])
        number = index[row] = numbers.setdefault(text, len(numbers))
        if number == len(texts):
            texts[text] = row
    order = np.argsort(np.array(list(texts.values())), kind="stable")
    names = list(texts)
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    return places[index], [names[number] for number in order.tolist()]


def _by_kernel(
    native: ModuleType, raw: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]
) -> tuple[NDArray[np.int32], list[bytes]] | None:
    """None when too many texts have one hash: unlike a dictionary's, the kernel's has no secret."""
    start, length = np.ascontiguousarray(start), np.ascontiguousarray(length)
    index, firsts = np.empty(len(start), np.int32), np.empty(len(start), np.int64)
    table = np.zeros(1 << (2 * len(start)).bit_length(), np.int32)
    count = native.group(raw, start, length, index, firsts, table)
    if count < 0:
        return None
    first = firsts[:count]
    places = zip(start[first].tolist(), length[first].tolist(), strict=True)
    return index, [bytes(raw.data[at : at + width]) for at, width in places]


def _numbers_of_equals(
    raw: NDArray[np.uint8],
    start: NDArray[np.int64],
    width: int,
    rows: NDArray[np.int64],
    texts: dict[bytes, int],
) -> NDArray[np.int32]:
    """Numbers for texts of `width` bytes, −1 where it has none yet; new ones go into `texts` with
    the row of their first appearance. Compared eight bytes at a time."""
    front = -width % _WORD
    if width:
        padded = windows(raw, front + width)[start - front]
        padded[:, :front] = 0
    else:
        padded = np.zeros((len(start), _WORD), np.uint8)
    words = padded.view(np.uint64)
    index = np.full(len(start), -1, np.int32)
    for _ in range(_ROUNDS):
        first = int((index < 0).argmax())
        if index[first] >= 0:
            break
        # All rows each time: to pick out those that are left costs more than to compare them again.
        alike = words[:, 0] == words[first, 0]
        for column in range(1, words.shape[1]):
            alike &= words[:, column] == words[first, column]
        np.putmask(index, alike, len(texts))
        at = int(start[first])
        texts[raw[at : at + width].tobytes()] = int(rows[first])
    return index
