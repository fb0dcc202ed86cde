"""Whether this service writes: while the log is a master's, and no later writer has claimed the
tier.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from stratamq.errors import NotWritableError, StrataError
from stratamq.formats.tier_progress import TierProgress
from stratamq.service.tasks import first_ended
from stratamq.tier.driver.calls import Version
from stratamq.tier.writing.claim import FencedError, PutBackError
from stratamq.tier.writing.progress import load_progress
from stratamq_tier.parts import Parts
from stratamq_tier.taking_over import FOREIGN, shared_end
from stratamq_tier.tenure import Tenure
from stratamq_tier.written_tier import is_older, recall, remember

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0


class TierRole:
    """Belongs to the event loop. `beside`: what runs while a tenure lasts."""

    def __init__(
        self,
        parts: Parts,
        wake: asyncio.Event,
        beside: Callable[[Tenure], Coroutine[Any, Any, None]],
    ) -> None:
        self.tenure: Tenure | None = None
        self.not_writing_reason = "the log was not met yet"
        self.is_known = False
        """Whose the tier is was found out once: in a tenure by its beginning."""
        self.foreign_reason = ""
        """Why the tier is another broker's; empty: it is this one's, as far as is known."""
        self.put_backs = 0
        """How often the tier was found to be older than it was."""
        self._seen: Version | None = None
        """The progress's, when it was looked for new queues last."""
        self._parts = parts
        self._wake = wake
        self._beside = beside

    async def run(self) -> None:
        """Until it is cancelled."""
        pause_s = FIRST_PAUSE_S
        doubted = False
        while True:
            state = self._parts.log.state
            if not state.generation or state.is_slave:
                await self._as_slave()
                continue
            tenure = Tenure(self._parts, state, self._wake, self._note_put_back, doubted=doubted)
            self.tenure, self.not_writing_reason = tenure, ""
            try:
                await first_ended(tenure.run(), self._beside(tenure))
                pause_s = FIRST_PAUSE_S
            except PutBackError as error:
                self._ended(error)
                doubted = True
                await self._pause(FIRST_PAUSE_S)
                continue
            except FencedError as error:
                self._ended(error)
                await self._until_log_changes(state.generation)
            except StrataError as error:
                self._ended(error)
                await self._pause(pause_s)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            finally:
                self.tenure = None
            # It is in the progress from then on.
            doubted = doubted and not tenure.begun.is_set()

    def _note_put_back(self) -> None:
        self.put_backs += 1

    def _ended(self, error: StrataError) -> None:
        if str(error) != self.not_writing_reason:
            log.error("not writing", extra={"reason": str(error)})
        self.tenure, self.not_writing_reason = None, str(error)
        self._judge(error)

    def _judge(self, error: StrataError | None) -> None:
        """What was found out about whose the tier is."""
        foreign = error is not None and error.fields.get("reason") == FOREIGN
        self.foreign_reason = str(error) if foreign else ""
        self.is_known = self.is_known or foreign or not error or isinstance(error, FencedError)

    async def _as_slave(self) -> None:
        """What its master has put into the tier this log may delete as well."""
        followed = self._parts.log
        if followed.state.generation:
            self.not_writing_reason = "the log is a slave's: its master's service writes"
            try:
                followed.committed = min(await self._in_tier(), followed.state.confirmed)
                followed.durable = followed.committed
                followed.read_to = followed.state.confirmed
                self._judge(None)
            except NotWritableError as error:
                followed.committed = followed.durable = 0
                self.not_writing_reason = str(error)
                self._judge(error)
            except StrataError as error:
                log.warning("tier progress unknown", extra={"reason": str(error)})
        await self._pause(self._parts.config.mount_look_ms / 1000)

    async def _in_tier(self) -> int:
        """The log offset below which the tier has what this log has, of queues that the table
        knows. NotWritableError when the tier is another log's; other errors of the storage."""
        parts = self._parts
        found = await parts.runner.start(load_progress(parts.config.cluster, parts.broker))
        if found is None:
            return 0
        (known, version), state = found, parts.log.state
        if version != self._seen:
            await self._compare(known)
        shared = await parts.reading.run(partial(shared_end, parts, known, state))
        if version != self._seen:
            # What the log may delete now is known to be in the tier first.
            await parts.look_for_new()
            self._seen = version
        return min(known.position, shared)

    async def _compare(self, known: TierProgress) -> None:
        """The tier of this progress with what was seen of it last; its writer mends it."""
        parts = self._parts
        names = parts.files, parts.config, parts.broker
        seen = await parts.reading.run(partial(recall, *names))
        if is_older(known, seen):
            self._note_put_back()
            log.error("the tier is an older copy of what it was", extra={"seen": seen})
        else:
            await parts.reading.run(partial(remember, *names, known))

    async def _until_log_changes(self, generation: int) -> None:
        while self._parts.log.state.generation == generation:
            self._wake.clear()
            await self._wake.wait()

    async def _pause(self, pause_s: float) -> None:
        """So long, or until the log's generation or role is another one."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + pause_s
        before = self._parts.log.state
        while (state := self._parts.log.state) and (state.generation, state.is_slave) == (
            before.generation,
            before.is_slave,
        ):
            self._wake.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                return
