"""Topics: listed, made, changed, purged and deleted, and sent to slaves."""

from collections.abc import Callable, Mapping, Sequence

from stratamq.formats.log_state import Role
from stratamq.formats.numbers import NextOffset
from stratamq.rpc.changes import ReadMark
from stratamq.rpc.paging import place_of, position_of
from stratamq.service.awaiting import succeeded
from stratamq_commitlog.engine import QUEUES_PER_STEP, CommitLog
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.write.topic_table import Configs, TopicConfig


class Topics:
    """What it has changed is on disk when it returns."""

    def __init__(self, log: ServedLog) -> None:
        self._log = log

    def find(self, topic: str) -> Configs:
        return self._current().topics.find(topic)

    def page(self, position: int, wanted: int, contains: str) -> tuple[Configs, int]:
        """Topics from a position on that have `contains` in their names, and the next page's
        position; 0: there is none."""
        log = self._current()
        found, following = log.topics.page(place_of(position, log.incarnation), wanted, contains)
        return found, position_of(following, log.incarnation)

    def _current(self) -> CommitLog:
        log = self._log.get()
        if log.role is Role.SLAVE:
            # Topics are not created here: they come with their master's messages.
            log.discover_topics(QUEUES_PER_STEP)
        return log

    async def put(self, config: TopicConfig, *, must_be_new: bool) -> TopicConfig:
        log = self._owner()
        if must_be_new:
            log.topics.require_new(config.topic)
        return await _saved(log, log.topics.put(config))

    async def change(
        self,
        topic: str,
        changed: Callable[[TopicConfig], TopicConfig],
        minimums: Mapping[int, int],
    ) -> TopicConfig:
        """Change a topic's settings, and hide the messages below the `minimums` of its queues."""
        log = self._owner()
        known = log.topics.get(topic)
        if minimums:
            await succeeded(lambda done: log.topic_changes.purge(topic, minimums, done))
            known = log.topics.get(topic)
        return await _saved(log, log.topics.put(changed(known)))

    def _owner(self) -> CommitLog:
        log = self._log.get()
        if log.state.is_slave and not log.state.recovering_tail:
            raise log.gate.only_master("a slave takes its topics from its master: change them")
        # No queue that has messages becomes unreadable.
        log.discover_topics()
        return log

    async def delete(self, topic: str) -> None:
        log = self._log.get()
        await succeeded(lambda done: log.topic_changes.delete(topic, done))
        await succeeded(log.upkeep.save_topics)

    def export_changes(self, mark: ReadMark) -> tuple[bytes, ReadMark]:
        """What changed since the mark, for a slave."""
        return self._log.get().topics.export_changes(mark)

    async def take_over(self, topics_json: bytes) -> None:
        """Take a master's topics."""
        log = self._log.get()
        log.topics.import_json(topics_json, log.appender.queues.table)
        await succeeded(log.upkeep.save_topics)

    def learn_queues(
        self, generation: int, appended_offset: int, table: Sequence[NextOffset], *, more: bool
    ) -> int:
        """Take a page of a master's next queue offsets; how many were not known."""
        slave_data = self._log.get().slave_data
        return slave_data.learn_queues(generation, appended_offset, table, more=more)


async def _saved(log: CommitLog, config: TopicConfig) -> TopicConfig:
    await succeeded(log.upkeep.save_topics)
    return config
