"""Burials that workers ask for: messages go to the dead letters before their attempts are used up.

A burial names its message's place in the log, so the message is read first. The receipt is judged
before the read and again after it, because it may expire in between.
"""

from collections.abc import Awaitable, Callable, Sequence

from stratamq.errors import ExpiredReceiptError, StrataError, UnavailableError
from stratamq_delivery.entries import Buried, Completed
from stratamq_delivery.judging import Judge, by_hand_out
from stratamq_delivery.reading import MessageReader, runs_of
from stratamq_delivery.records import GroupPlace
from stratamq_delivery.shared_groups import SharedGroups

Found = dict[tuple[GroupPlace, int], tuple[int, int] | None]
"""Offset and size in the log, by queue and offset; None: the log has deleted the message."""


class AskedBurials:
    """Belongs to the event loop of the fold."""

    def __init__(
        self,
        groups: SharedGroups,
        judge: Judge,
        reader: MessageReader,
        now_ms: Callable[[], int],
        promise: Callable[[], Awaitable[None]],
    ) -> None:
        """`promise`: until what was decided is as safe as an acknowledgement."""
        self._groups = groups
        self._judge = judge
        self._reader = reader
        self._now_ms = now_ms
        self._promise = promise

    async def bury(
        self, group: str, topic: str, receipts: Sequence[bytes], attempts: int
    ) -> list[StrataError | None]:
        """For each message why nothing was changed, or None: it will be a dead letter, once.
        `attempts`: how often it was tried; 0: as often as it was handed out."""
        epoch = self._groups.epoch
        given = group, topic, receipts
        found = await self._read(self._judge.each(*given, self._now_ms(), finishing=Buried))
        if self._groups.epoch != epoch:
            raise UnavailableError("the log has changed its master, or was restarted: ask again")
        outcomes = list[StrataError | None]()
        decided: set[tuple[GroupPlace, int]] = set()
        judged = self._judge.each(*given, self._now_ms(), finishing=Buried)
        for error, place, receipt in judged:
            key = place, receipt.offset
            if error is None and receipt.offset >= 0 and key not in decided:
                if key not in found:
                    error = ExpiredReceiptError(f"offset {receipt.offset} was another's: ask again")
                else:
                    decided.add(key)
                    self._decide(*key, receipt.token, attempts or receipt.attempt, found[key])
            outcomes.append(error)
        await self._promise()
        return outcomes

    def _decide(
        self,
        place: GroupPlace,
        offset: int,
        token: int,
        attempt: int,
        message: tuple[int, int] | None,
    ) -> None:
        runs = ((offset, offset + 1),)
        if message is None:
            self._groups.decide(place, Completed(runs, token))
        else:
            self._groups.decide(place, Buried(runs, token, attempt, *message))

    async def _read(self, judged: Sequence[tuple]) -> Found:
        found: Found = {}
        for (place, token), offsets in by_hand_out(judged).items():
            for run in runs_of(offsets):
                async for read in self._reader.again(place, run, 1, token):
                    found |= {(place, offset): None for offset in range(*read.gone)}
                    for offset, physical_offset, raw in read.messages:
                        found[place, offset] = physical_offset, len(raw)
        return found
