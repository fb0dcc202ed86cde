"""The offsets that consumers commit: their own commits (15), and those that pulls carry (11)."""

import asyncio
from collections.abc import Mapping
from functools import partial
from weakref import WeakKeyDictionary

from stratamq.errors import StrataError
from stratamq.service.front import FrontClient

COMMIT_INTERVAL_S = 0.1
"""How often offsets that pulls carry are committed. There may be a thousand pulls a second."""
MAX_KNOWN = 10_000
"""Offsets of a caller that need not be committed again."""
MAX_FAILED = 100
"""Groups of a caller whose next pull is refused."""

Place = tuple[str, int]
"""Topic and queue id."""
Round = asyncio.Future[Mapping[str, StrataError]]
"""Gives the groups whose offsets could not be committed."""


class _Offsets:
    """What one caller is about to commit."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Place], int] = {}
        """Those of pulls that were committed, or will be."""
        self.waiting: dict[str, dict[Place, int]] = {}
        """The newest of each queue, by group."""
        self.failed: dict[str, StrataError] = {}
        self.round: Round | None = None
        """The next one, if a request waits for it."""
        self.runs = False
        self.timer: asyncio.TimerHandle | None = None


class Commits:
    """The offsets that consumers commit, one call at a time for each caller: an older offset of a
    queue never follows a newer one. A pull does not wait for those that it carries; if they fail,
    the next pull of the group is refused."""

    def __init__(self) -> None:
        self._callers: WeakKeyDictionary[FrontClient, _Offsets] = WeakKeyDictionary()
        self._rounds: dict[str, set[Round]] = {}
        """By group, while they last."""

    def begin(self, client: FrontClient, group: str, place: Place, offset: int) -> None:
        """StrataError: why the last ones of the group were not committed."""
        offsets = self._of(client)
        if group in offsets.failed:
            raise offsets.failed.pop(group)
        if offsets.known.get((group, place)) == offset:
            return
        if len(offsets.known) >= MAX_KNOWN:
            offsets.known.clear()
        offsets.known[group, place] = offset
        offsets.waiting.setdefault(group, {})[place] = offset
        self._run_later(client, offsets)

    async def commit(self, client: FrontClient, group: str, place: Place, offset: int) -> None:
        """StrataError."""
        offsets = self._of(client)
        offsets.known.pop((group, place), None)
        offsets.waiting.setdefault(group, {})[place] = offset
        if offsets.round is None:
            offsets.round = asyncio.get_running_loop().create_future()
        self._note(group, offsets.round)
        self._run_now(client, offsets)
        # Others wait for the round, too, and it ends whether or not this connection does.
        failed = await asyncio.shield(offsets.round)
        if group in failed:
            raise failed[group]

    async def settled(self, group: str) -> None:
        """Wait for the commits of the group that have come, of all callers. A consumer that leaves
        says how far it is without waiting for an answer, and the next one asks at once."""
        if rounds := self._rounds.get(group):
            await asyncio.wait(set(rounds))

    def _note(self, group: str, awaited: Round) -> None:
        rounds = self._rounds.setdefault(group, set())
        if awaited not in rounds:
            rounds.add(awaited)
            awaited.add_done_callback(partial(self._forget, group))

    def _forget(self, group: str, ended: Round) -> None:
        self._rounds[group].remove(ended)
        if not self._rounds[group]:
            del self._rounds[group]

    def _of(self, client: FrontClient) -> _Offsets:
        offsets = self._callers.get(client)
        if offsets is None:
            offsets = self._callers[client] = _Offsets()
        return offsets

    def _run_later(self, client: FrontClient, offsets: _Offsets) -> None:
        if not offsets.runs and offsets.timer is None:
            loop = asyncio.get_running_loop()
            offsets.timer = loop.call_later(COMMIT_INTERVAL_S, self._run_now, client, offsets)

    def _run_now(self, client: FrontClient, offsets: _Offsets) -> None:
        if offsets.timer is not None:
            offsets.timer.cancel()
            offsets.timer = None
        if not offsets.runs:
            offsets.runs = True
            client.finish(self._run(client, offsets))

    async def _run(self, client: FrontClient, offsets: _Offsets) -> None:
        """Until no request waits."""
        while True:
            waiting, offsets.waiting = offsets.waiting, {}
            awaited, offsets.round = offsets.round, None
            failed: dict[str, StrataError] = {}
            for group, places in waiting.items():
                try:
                    await client.commit_offsets(group, places)
                except StrataError as error:
                    failed[group] = error
                    for place in places:
                        offsets.known.pop((group, place), None)
            if awaited is not None:
                awaited.set_result(failed)
            offsets.failed = dict([*(offsets.failed | failed).items()][-MAX_FAILED:])
            if offsets.round is None:
                break
        offsets.runs = False
        if offsets.waiting:
            self._run_later(client, offsets)
