"""Records that were sent to the log, and the promises that wait for them.

    sent ──► in flight ──► answered with PUT_OK: flushed, and on k slaves ──► the fold reads it
                       └─► answered otherwise ──► the fold reads it ──► flushed

A promise is kept at the first of both: with PUT_OK, which is some milliseconds before the fold
reads the record; or when it is flushed and the fold, which reads only what k slaves have, has read
it. A record is stored behind all that were sent before it, so that what holds for it holds for
them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.errors import StrataError
from stratamq.follow.fold import FoldPlace
from stratamq_delivery.records import GroupRecord

Done = Callable[[StrataError | None], None]

MAX_UNREAD = 64
"""Records that the fold has not read: their memory is bounded when it is behind."""


@dataclass(slots=True)
class _Sent:
    record: GroupRecord
    body: bytes
    promises: list[Done]
    is_flushed: bool = False
    """On k slaves, too."""


class SentRecords:
    """Those of one stream, in order."""

    def __init__(self) -> None:
        self._unread: deque[_Sent] = deque()
        self._read: deque[tuple[int, list[Done]]] = deque()
        """Read by the fold, and perhaps not flushed: where each ends, and its promises."""

    @property
    def may_send(self) -> bool:
        """One record is in flight at a time."""
        is_in_flight = bool(self._unread) and not self._unread[-1].is_flushed
        return not is_in_flight and len(self._unread) < MAX_UNREAD

    def begin(self, followed: FoldPlace) -> None:
        """What earlier streams stored is read, and perhaps not flushed."""
        if followed.flushed < followed.applied:
            self._read.append((followed.applied, []))

    def send(self, record: GroupRecord, body: bytes, promises: list[Done]) -> None:
        self._unread.append(_Sent(record, body, promises))

    def promise(self, done: Done) -> None:
        """For all that was sent."""
        if self._unread and not self._unread[-1].is_flushed:
            self._unread[-1].promises.append(done)
        elif self._read and not self._unread:
            self._read[-1][1].append(done)
        else:
            done(None)

    def acknowledged(self, body: bytes) -> None:
        """The log has answered the record with PUT_OK. The fold may have read it already: then
        `flushed` comes at the same time."""
        if all(one.body is not body for one in self._unread):
            return
        for _, promises in self._read:
            _keep(promises)
        self._read.clear()
        for one in self._unread:
            one.is_flushed = True
            _keep(one.promises)
            if one.body is body:
                break

    def read(self, end: int) -> bool:
        """The fold has read the next one, which ends there in the log. False: it waits for none."""
        if not self._unread:
            return False
        one = self._unread.popleft()
        if not one.is_flushed:
            self._read.append((end, one.promises))
        return True

    def flushed(self, position: int) -> None:
        while self._read and self._read[0][0] <= position:
            _keep(self._read.popleft()[1])

    def give_up(self) -> tuple[list[GroupRecord], list[Done]]:
        """What the fold has not read, and the promises that cannot be kept."""
        unread, read = self._unread, self._read
        self._unread, self._read = deque(), deque()
        waiting = [*(promises for _, promises in read), *(one.promises for one in unread)]
        return [one.record for one in unread], [done for some in waiting for done in some]


def _keep(promises: list[Done]) -> None:
    for done in promises:
        done(None)
    promises.clear()
