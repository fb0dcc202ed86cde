"""Whether a receipt is still valid, and the reason if it is not.

A worker usually settles everything that one call gave it: consecutive messages of one hand-out with
one receipt, which are judged as one. A receipt that is not valid as a whole is judged message by
message, so that each gets its own outcome.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from stratamq.errors import ExpiredReceiptError, InvalidRequestError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.topics import retry_topic
from stratamq_delivery.entries import Buried, Completed, Receipt
from stratamq_delivery.receipts import ReceiptRun, decode_receipt, place_in_log
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import MAX_UNFINISHED

Judged = tuple[StrataError | None, GroupPlace, Receipt]
"""An offset of -1: it is good, and nothing is left to do."""
Finishing = type[Completed | Buried] | None
"""What is to become of the messages; None: another hand-out gets them."""


class Judge:
    """By the state with all that was decided. Changes nothing."""

    def __init__(
        self, groups: SharedGroups, followed: FoldPlace, minimum: Callable[[str, int], int]
    ) -> None:
        """`minimum`: below which offset messages of a topic's queue are gone."""
        self._groups = groups
        self._followed = followed
        self._minimum = minimum

    def held_run(self, group: str, topic: str, data: bytes, now_ms: int) -> ReceiptRun | None:
        """All messages of a receipt, when their hand-out has all of them. None: `each` says what
        they are worth."""
        try:
            run = _decoded(data, group, topic)
        except InvalidRequestError:
            return None
        queue = self._groups.queue(run.place)
        if queue is None or run.start < self._minimum_of(run.place) or not self._in_log(run):
            return None
        return run if queue.has_all(run.token, run.start, run.end, now_ms) else None

    def each(
        self,
        group: str,
        topic: str,
        receipts: Iterable[bytes],
        now_ms: int,
        *,
        finishing: Finishing = None,
    ) -> list[Judged]:
        """Message by message; one for what is no receipt. In order, as if each were settled before
        the next is judged: after losses of power, receipts of several lost hand-outs of a message
        are good, and the first one settles it."""
        judged: list[Judged] = []
        settled: dict[tuple[GroupPlace, int], int] = {}
        nothing = GroupPlace(group, topic, 0, -1), Receipt(-1, 0, 0, 0)
        for data in receipts:
            try:
                run = _decoded(data, group, topic)
            except InvalidRequestError as failure:
                judged.append((failure, *nothing))
                continue
            for receipt in run.each():
                try:
                    is_open = self._require(run, receipt, now_ms, finishing)
                    token = settled.setdefault((run.place, receipt.offset), run.token)
                    if token != run.token and finishing is None:
                        raise ExpiredReceiptError(f"another hand-out has offset {receipt.offset}")
                    is_open = is_open and token == run.token
                    judged.append((None, *((run.place, receipt) if is_open else nothing)))
                except InvalidRequestError as failure:
                    judged.append((failure, run.place, receipt))
        return judged

    def _require(
        self, run: ReceiptRun, receipt: Receipt, now_ms: int, finishing: Finishing
    ) -> bool:
        """See `SharedQueue.require`."""
        offset, queue = receipt.offset, self._groups.queue(run.place)
        if queue is None or offset >= queue.next + MAX_UNFINISHED:
            raise ExpiredReceiptError(f"the group does not have offset {offset}")
        if not self._in_log(run):
            raise ExpiredReceiptError(f"the log has lost the message of {offset}")
        if offset < self._minimum_of(run.place):
            raise ExpiredReceiptError(
                f"the message of {offset} was purged, or deleted with its topic"
            )
        try:
            return queue.require(receipt, now_ms, finishing=finishing is not None)
        except ExpiredReceiptError:
            # Its answer may have been lost, and its time has passed since.
            lately = self._groups.acknowledged_lately
            hand_out, flushed = (run.place, receipt.token, offset), self._followed.flushed
            if (
                finishing is not None
                and queue.has_finished(offset)
                and lately.has(*hand_out, flushed, buried=finishing is Buried)
            ):
                return False
            raise

    def _in_log(self, run: ReceiptRun) -> bool:
        """Generations rise with the offsets of the log: what holds at both ends holds between."""
        ends = (run.lowest, run.highest)
        return all(place_in_log(self._followed, end.offset) == end for end in ends)

    def _minimum_of(self, place: GroupPlace) -> int:
        return self._minimum(place.topic, place.queue_id)


def _decoded(data: bytes, group: str, topic: str) -> ReceiptRun:
    """It may be of a message of the topic, or of one that was replayed."""
    try:
        return decode_receipt(data, group, topic, 0)
    except InvalidRequestError:
        with suppress(InvalidRequestError):
            return decode_receipt(data, group, retry_topic(group, topic), 0)
        raise


def by_hand_out(
    judged: Iterable[Judged],
) -> dict[tuple[GroupPlace, int], list[int]]:
    """The offsets of good receipts, each once and in order, by queue and token."""
    found: dict[tuple[GroupPlace, int], set[int]] = {}
    for error, place, receipt in judged:
        if error is None and receipt.offset >= 0:
            found.setdefault((place, receipt.token), set()).add(receipt.offset)
    return {key: sorted(offsets) for key, offsets in found.items()}
