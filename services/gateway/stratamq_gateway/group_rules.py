"""What the delivery service says of groups: whether they may consume, and how often."""

import asyncio
from collections.abc import Awaitable
from itertools import takewhile
from logging import getLogger

from stratamq.client import AsyncClient
from stratamq.client.group_receipts import GroupSettings
from stratamq.errors import NotFoundError, StrataError
from stratamq.files.port import Clock
from stratamq.formats.json_files import DEFAULT_RETRIES

log = getLogger(__name__)

ASKED_EVERY_S, KEPT_S = 20, 120


def without_settings(group: str) -> GroupSettings:
    """RocketMQ's."""
    return GroupSettings(group, False, DEFAULT_RETRIES, True)


async def settings_of(group: str, answer: Awaitable[list[GroupSettings]]) -> GroupSettings:
    """`answer`: to a call for the settings of this group."""
    try:
        return (await answer)[0]
    except NotFoundError:
        return without_settings(group)


class GroupRules:
    """The settings of groups whose consumers are connected here. A change by a tool that is
    connected here is known at once, others with the heartbeats of the group's consumers, which
    Java's clients send every 30 s. Belongs to the event loop."""

    def __init__(self, own: AsyncClient, clock: Clock) -> None:
        self._own = own
        self._clock = clock
        self._asked_ns: dict[str, int] = {}
        """When each group was asked for, the longest ago first."""
        self._disabled: set[str] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def may_consume(self, group: str) -> bool:
        return group not in self._disabled

    async def retries(self, group: str) -> int:
        """StrataError."""
        return (await settings_of(group, self._own.group_settings(group))).retries

    def beat(self, group: str) -> None:
        """A consumer of the group is there: ask for the settings, unless that was done lately."""
        now_ns = self._clock.monotonic_ns()
        asked_ns = self._asked_ns.get(group)
        if asked_ns is None or asked_ns < now_ns - ASKED_EVERY_S * 1_000_000_000:
            self._note(group)
            if group not in self._asking:
                task = asyncio.get_running_loop().create_task(self._ask(group))
                self._asking[group] = task
                task.add_done_callback(lambda _: self._asking.pop(group))

    async def _ask(self, group: str) -> None:
        try:
            settings = await settings_of(group, self._own.group_settings(group))
        except StrataError as error:
            log.info("settings stay as they were", extra={"group": group, "why": error})
        else:
            self._put(settings)

    def change(self, settings: GroupSettings) -> None:
        """A tool that is connected here has given the group these. An answer from before is not
        believed."""
        if settings.group in self._asking:
            self._asking[settings.group].cancel()
        self._note(settings.group)
        self._put(settings)

    def _put(self, settings: GroupSettings) -> None:
        if settings.consume_enabled:
            self._disabled.discard(settings.group)
        else:
            self._disabled.add(settings.group)

    def _note(self, group: str) -> None:
        now_ns = self._clock.monotonic_ns()
        self._asked_ns.pop(group, None)
        self._asked_ns[group] = now_ns
        late_ns = now_ns - KEPT_S * 1_000_000_000
        for gone in [*takewhile(lambda one: self._asked_ns[one] < late_ns, self._asked_ns)]:
            del self._asked_ns[gone]
            self._disabled.discard(gone)
