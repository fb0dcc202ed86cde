"""Records of shared groups: what was decided while one flush ran, as the body of one message.

The format is ours. Big-endian; `n` is an unsigned LEB128 number of at most 64 bits, `t` a text:
its length in UTF-8 as `n`, then the bytes.

    0   4  magic, "SDR1"
    4   1  1: a piece of the whole state; +2: the first one; +4: the last one
    5      places: n, then for each: t group, t topic, n incarnation of the topic, n queue
           clients: n, then t for each
           entries, until the end: kind (1 byte), n place, then by kind

    kind              fields
    1  handed out     token (8), n attempt, n until ms, n client, leased (1), runs
    2  finished       token (8), runs
    3  moved          token (8), token (8), n attempt, n until ms, n client, leased (1), runs
    4  passed over    runs
    5  started        n floor
    6  stopped
    7  buried         token (8), n attempt, n source, n size, runs
    8  configured     n attempts, +1: ordered, +2: not enabled (1); its place has no topic

`runs`: n their number, then for each, n its distance to the end of the one before (the first: to
0), and n its length. A batch of 32 neighbouring messages that is handed out takes 24 bytes.

The checksum is the frame's. What is not a record raises CorruptRecordError: the fold never skips.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeVar

from stratamq.errors import CorruptRecordError
from stratamq.formats.topics import OWN_PREFIX
from stratamq_delivery.entries import (
    Bounds,
    Buried,
    Completed,
    Configured,
    Entry,
    HandedOut,
    Moved,
    PassedOver,
    Started,
    Stopped,
)

Value = TypeVar("Value")

RECORDS = f"{OWN_PREFIX}DELIVERY"
"""Written by this service alone: records of shared groups and of transactions, told apart by their
first bytes."""
MAGIC = b"SDR1"
_HEAD = Struct(">4sB")
_TOKEN = Struct(">Q")
_HANDED_OUT, _FINISHED, _MOVED, _PASSED_OVER, _STARTED, _STOPPED, _BURIED, _CONFIGURED = range(1, 9)
_PIECE, _FIRST, _LAST = 1, 2, 4


class GroupPlace(NamedTuple):
    """A queue of a group's; without a topic, the group. `incarnation` tells a topic from a deleted
    one of the same name. A tuple, because every look-up hashes it."""

    group: str
    topic: str
    incarnation: int
    queue_id: int


@dataclass(frozen=True, slots=True)
class GroupRecord:
    entries: tuple[tuple[GroupPlace, Entry], ...]
    is_piece: bool = False
    """Whether it holds a piece of the whole state, rather than decisions."""
    is_first: bool = False
    is_last: bool = False


def in_workers_hands(given_up: Iterable[GroupRecord]) -> Iterator[tuple[GroupPlace, Entry]]:
    """Decisions by which workers have messages, of those that the log may not have: hand-outs, what
    started their queues, and what freed their messages before, in order."""
    moved: list[tuple[GroupPlace, Moved]] = []
    stopped: dict[GroupPlace, Stopped] = {}
    for place, entry in [one for record in given_up for one in record.entries]:
        if isinstance(entry, Moved):
            moved.append((place, entry))
        elif isinstance(entry, HandedOut):
            freed = [one for one in moved if one[0] == place and _meet(one[1].runs, entry.runs)]
            moved = [one for one in moved if one not in freed]
            yield from (*freed, (place, entry))
        elif isinstance(entry, Stopped):
            stopped[place] = entry
        elif isinstance(entry, Started):
            if place in stopped:
                yield place, stopped.pop(place)
            yield place, entry


def _meet(some: tuple[Bounds, ...], others: tuple[Bounds, ...]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def encode(record: GroupRecord) -> bytes:
    places: dict[GroupPlace, int] = {}
    clients: dict[str, int] = {}
    body = bytearray()

    def given(entry: HandedOut) -> None:
        body.extend(_TOKEN.pack(entry.token))
        _put(body, entry.attempt)
        _put(body, entry.until_ms)
        _put(body, clients.setdefault(entry.client, len(clients)))
        body.append(entry.leased)

    for place, entry in record.entries:
        kind = _KINDS[type(entry)]
        body.append(kind)
        _put(body, places.setdefault(place, len(places)))
        if isinstance(entry, Completed | Moved | Buried):
            body.extend(_TOKEN.pack(entry.token))
        if isinstance(entry, Buried):
            for number in (entry.attempt, entry.source, entry.size):
                _put(body, number)
        if isinstance(entry, HandedOut | Moved):
            given(entry.new if isinstance(entry, Moved) else entry)
        if isinstance(entry, Started):
            _put(body, entry.floor)
        elif isinstance(entry, Configured):
            _put(body, entry.attempts)
            body.append(entry.ordered + 2 * (not entry.enabled))
        elif not isinstance(entry, Stopped):
            _put_runs(body, entry.runs)
    flags = _PIECE * record.is_piece | _FIRST * record.is_first | _LAST * record.is_last
    head = bytearray(_HEAD.pack(MAGIC, flags))
    _put(head, len(places))
    for place in places:
        _put_text(head, place.group)
        _put_text(head, place.topic)
        _put(head, place.incarnation)
        _put(head, place.queue_id)
    _put(head, len(clients))
    for client in clients:
        _put_text(head, client)
    return bytes(head + body)


def decode(body: bytes) -> GroupRecord:
    """CorruptRecordError at the place where it is no record."""
    return _Reader(body).record()


_KINDS: dict[type[Entry], int] = {
    HandedOut: _HANDED_OUT,
    Completed: _FINISHED,
    Moved: _MOVED,
    PassedOver: _PASSED_OVER,
    Started: _STARTED,
    Stopped: _STOPPED,
    Buried: _BURIED,
    Configured: _CONFIGURED,
}


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def record(self) -> GroupRecord:
        if len(self._body) < _HEAD.size or not self._body.startswith(MAGIC):
            raise self._no_record("head")
        _, flags = _HEAD.unpack_from(self._body)
        if flags > _PIECE | _FIRST | _LAST:
            raise self._no_record("head")
        self._at = _HEAD.size
        places = [*self._several(self._place)]
        clients = [*self._several(self._text)]
        entries = []
        while self._at < len(self._body):
            kind = self._byte()
            place = self._of(places)
            entries.append((place, self._entry(kind, clients)))
        return GroupRecord(
            tuple(entries), bool(flags & _PIECE), bool(flags & _FIRST), bool(flags & _LAST)
        )

    def _entry(self, kind: int, clients: list[str]) -> Entry:
        if kind == _HANDED_OUT:
            return self._handed_out(clients)
        if kind == _FINISHED:
            token = self._token()
            return Completed(self._runs(), token)
        if kind == _MOVED:
            token = self._token()
            new = self._handed_out(clients)
            return Moved(new.runs, token, new)
        if kind == _PASSED_OVER:
            return PassedOver(self._runs())
        if kind == _BURIED:
            token, attempt, source = self._token(), self._number(), self._number()
            size = self._number()
            return Buried(self._runs(), token, attempt, source, size)
        if kind == _STARTED:
            return Started(self._number())
        if kind == _STOPPED:
            return Stopped()
        if kind == _CONFIGURED:
            attempts, flags = self._number(), self._byte()
            return Configured(bool(flags & 1), attempts, not flags & 2)
        raise self._no_record("kind")

    def _handed_out(self, clients: list[str]) -> HandedOut:
        token, attempt, until_ms = self._token(), self._number(), self._number()
        client, leased = self._of(clients), self._byte()
        return HandedOut(self._runs(), token, attempt, until_ms, client, bool(leased))

    def _place(self) -> GroupPlace:
        return GroupPlace(self._text(), self._text(), self._number(), self._number())

    def _several(self, read: Callable[[], Value]) -> Iterator[Value]:
        # Each takes a byte at least, so that a number cannot ask for more than the body has.
        for _ in range(min(self._number(), len(self._body))):
            yield read()

    def _of(self, values: list[Value]) -> Value:
        number = self._number()
        if number >= len(values):
            raise self._no_record("reference")
        return values[number]

    def _runs(self) -> tuple[Bounds, ...]:
        runs, end = [], 0
        for distance, length in self._several(lambda: (self._number(), self._number())):
            start = end + distance
            end = start + length
            if not length:
                raise self._no_record("run")
            runs.append((start, end))
        return tuple(runs)

    def _token(self) -> int:
        (token,) = _TOKEN.unpack(self._take(_TOKEN.size))
        return int(token)

    def _text(self) -> str:
        try:
            return self._take(self._number()).decode()
        except UnicodeDecodeError:
            raise self._no_record("text") from None

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, size: int) -> bytes:
        taken = self._body[self._at : self._at + size]
        if len(taken) < size:
            raise self._no_record("length")
        self._at += size
        return taken

    def _number(self) -> int:
        number, shift = 0, 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if number >= 1 << 64 or shift > 63:
                raise self._no_record("number")
            if byte < 0x80:
                return number
            shift += 7

    def _no_record(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"a record of the delivery service is damaged at byte {self._at}: {reason}",
            self._at,
            reason,
        )


def _put(body: bytearray, number: int) -> None:
    assert 0 <= number < 1 << 64
    while number >= 0x80:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _put_text(body: bytearray, text: str) -> None:
    raw = text.encode()
    _put(body, len(raw))
    body.extend(raw)


def _put_runs(body: bytearray, runs: tuple[Bounds, ...]) -> None:
    _put(body, len(runs))
    before = 0
    for start, end in runs:
        _put(body, start - before)
        _put(body, end - start)
        before = end
