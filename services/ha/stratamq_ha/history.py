"""Up to where two logs are one: what a slave keeps. Pure.

A generation's number is invented once, and whoever lists one holds the bytes that its inventor
held, from the log's minimum to the generation's end. So the last non-empty generation of the slave
that the master has too is as far as they agree, to the lesser of its two ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stratamq.formats.replication_opening import Generations, Has, Keeps, Verdict


@dataclass(frozen=True, slots=True)
class History:
    """A log as far as another needs to know it. Log offsets."""

    generations: Generations
    minimum: int
    end: int

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """(generation, start, end) of those that are not empty. The next one's start may lie beyond
        the end: a slave knows of generations whose first byte it does not have yet."""
        for at, (number, start) in enumerate(self.generations):
            later = self.generations[at + 1 : at + 2]
            end = min(later[0][1], self.end) if later else self.end
            if max(start, self.minimum) < end:
                yield number, start, end


def shared_end(master: History, slave: History) -> int | None:
    """Up to here both logs are equal, as far as they reach back; None: they share nothing."""
    ends: dict[int, int] = {}
    for number, _, end in master.stretches():
        ends[number] = max(end, ends.get(number, 0))
    for number, _, end in reversed(list(slave.stretches())):
        if number in ends:
            return min(end, ends[number])
    return None


def judge(
    master: History,
    has: Has,
    *,
    shippable: int,
    confirmed: int,
    segment_bytes: int,
    name: str,
    address: str,
) -> Keeps:
    """What the slave that says `has` shall do."""

    def answer(verdict: Verdict, cut_to: int, sentence: str = "") -> Keeps:
        return Keeps(
            verdict,
            cut_to,
            master.minimum,
            shippable,
            confirmed,
            sentence,
            address,
            master.generations,
        )

    if has.name != name:
        return answer(Verdict.REFUSED, 0, f"this is broker {name}, and the slave is of {has.name}")
    if has.segment_bytes != segment_bytes:
        return answer(
            Verdict.REFUSED,
            0,
            f"segments have {segment_bytes} bytes here and {has.segment_bytes} at the slave "
            "(commitlog.segment_bytes): its log could not be byte-identical",
        )
    if has.end == has.minimum:
        return answer(Verdict.BEGIN, master.minimum)
    slave = History(has.generations, has.minimum, has.end)
    shared = shared_end(master, slave)
    if shared is None and master.end == master.minimum:
        return answer(
            Verdict.STRANGER,
            master.minimum,
            f"the master's log is empty, and the slave's is [{has.minimum}, {has.end}): promote "
            "the slave (`stratamq replica promote` there), or let it begin anew with nothing "
            "(`stratamq replica resync`; what it has is kept)",
        )
    if shared is None:
        return answer(
            Verdict.STRANGER,
            master.minimum,
            f"nothing of the slave's log [{has.minimum}, {has.end}) is known to be of this log's "
            "history (`stratamq replica resync` on the slave begins anew; what it has is kept)",
        )
    if shared < master.minimum or shared <= has.minimum:
        return answer(
            Verdict.BEGIN,
            master.minimum,
            f"the logs agree up to {shared}, and this one begins at {master.minimum}",
        )
    return answer(Verdict.KEEP, shared)
