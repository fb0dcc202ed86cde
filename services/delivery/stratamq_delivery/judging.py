"""Whether a receipt still counts, and why it does not.

A worker mostly settles all that one call gave it: consecutive messages of one hand-out, which are
judged as one. Whatever is not such a run, or not good as a whole, is judged message by message, so
that each gets its own outcome.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from stratamq.errors import ExpiredReceiptError, InvalidRequestError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.formats.topics import retry_topic
from stratamq_delivery.entries import Receipt
from stratamq_delivery.receipts import ReceiptRun, decode_receipt, place_in_log, run_of_receipts
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.shared_queue import MAX_UNFINISHED

Judged = tuple[StrataError | None, GroupPlace, Receipt]
"""An offset of -1: it is good, and nothing is left to do."""


class Judge:
    """By the state with all that was decided. Changes nothing."""

    def __init__(
        self, groups: SharedGroups, followed: FoldPlace, minimum: Callable[[str, int], int]
    ) -> None:
        """`minimum`: below which offset messages of a topic's queue are gone."""
        self._groups = groups
        self._followed = followed
        self._minimum = minimum

    def held_run(
        self, group: str, topic: str, receipts: Sequence[bytes], now_ms: int
    ) -> ReceiptRun | None:
        """All of them, when one hand-out has all these messages. None: `each` says what they are
        worth."""
        if len(receipts) < 2:
            return None
        run = run_of_receipts(receipts, group, topic, 0)
        run = run or run_of_receipts(receipts, group, retry_topic(group, topic), 0)
        queue = None if run is None else self._groups.queue(run.place)
        if run is None or queue is None or run.start < self._minimum_of(run.place):
            return None
        # Generations rise with the offsets of the log: what holds at both ends holds between them.
        for end in (run.lowest, run.highest):
            if place_in_log(self._followed, end.offset) != end:
                return None
        return run if queue.has_all(run.token, run.start, run.end, now_ms) else None

    def each(
        self,
        group: str,
        topic: str,
        receipts: Iterable[bytes],
        now_ms: int,
        *,
        acknowledging: bool = False,
    ) -> list[Judged]:
        """In order, as if each were settled before the next is judged: after losses of power,
        receipts of several lost hand-outs of a message are good, and the first one settles it."""
        judged: list[Judged] = []
        settled: dict[tuple[GroupPlace, int], int] = {}
        for data in receipts:
            place, receipt = nothing = GroupPlace(group, topic, 0, -1), Receipt(-1, 0, 0, 0)
            error: StrataError | None = None
            try:
                place, receipt = _decoded(data, group, topic)
                queue = self._groups.queue(place)
                if queue is None or receipt.offset >= queue.next + MAX_UNFINISHED:
                    raise ExpiredReceiptError(f"the group does not have offset {receipt.offset}")
                if place_in_log(self._followed, receipt.source.offset) != receipt.source:
                    raise ExpiredReceiptError(f"the log has lost the message of {receipt.offset}")
                if receipt.offset < self._minimum_of(place):
                    raise ExpiredReceiptError(
                        f"the message of {receipt.offset} was purged, or deleted with its topic"
                    )
                is_open = queue.require(receipt, now_ms, acknowledging=acknowledging)
                token = settled.setdefault((place, receipt.offset), receipt.token)
                if token != receipt.token and not acknowledging:
                    raise ExpiredReceiptError(f"another hand-out has offset {receipt.offset}")
                if token != receipt.token or not is_open:
                    place, receipt = nothing
            except InvalidRequestError as failure:
                error = failure
            judged.append((error, place, receipt))
        return judged

    def _minimum_of(self, place: GroupPlace) -> int:
        return self._minimum(place.topic, place.queue_id)


def _decoded(data: bytes, group: str, topic: str) -> tuple[GroupPlace, Receipt]:
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
