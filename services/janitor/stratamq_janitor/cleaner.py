"""One look at a time: gather the facts, decide, and ask the owner to delete.

The janitor deletes nothing itself. Two of them, or one that is killed in the middle, do no harm:
the log's owner deletes whole segments below an offset, and what is gone is gone for both.
"""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import COMMIT_LOG, RETENTION_PATH
from stratamq.store.origin import is_created_here
from stratamq_janitor.clock_watch import ClockWatch, Witness
from stratamq_janitor.config import JanitorConfig
from stratamq_janitor.facts import (
    Operators,
    Reach,
    Services,
    consumed_up_to,
    leaving_bytes,
    newest_message_ms,
    replicated_up_to,
    segment_facts,
    tiered_up_to,
    waiting_from,
)
from stratamq_janitor.fate import Outlook, fate_of, fates_of
from stratamq_janitor.policy import (
    CONSUMED,
    REPLICATED,
    TIERED,
    CleaningFacts,
    Decision,
    Settings,
    Share,
    any_is_old,
    decide,
    taken,
)

log = logging.getLogger(__name__)


_HOW = "`stratamq janitor enable` lets it delete"


class RetentionSwitch:
    """Whether anything may be deleted at all. The first that decides:

        janitor.enabled           true or false, when it is set
        stratamq/retention.json   {"enabled"}: `stratamq janitor enable` and `disable`; a file that
                                  cannot be trusted counts as disabled
        origin                    a store that StrataMQ made: enabled; one that another program
                                  made, or has held since: disabled

    Not thread-safe. `setting`: janitor.enabled.
    """

    def __init__(self, files: Files, setting: bool | None) -> None:
        self._files = files
        self._setting = setting
        self._file = MetadataFile(files, RETENTION_PATH)
        self._file.load()

    def obstacle(self) -> str:
        """Why nothing may be deleted; empty when the policy decides. To be asked while the log is
        open: opening it finds out whether another program has held the store."""
        if self._setting is not None:
            return "" if self._setting else "the setting janitor.enabled is false"
        found = self._file.found
        if found.outcome is LoadOutcome.OK:
            enabled = (found.data or {}).get("enabled") is True
            return "" if enabled else f"an operator has disabled retention; {_HOW}"
        if found.outcome is not LoadOutcome.MISSING:
            return f"{RETENTION_PATH} is damaged; {_HOW}"
        if is_created_here(self._files):
            return ""
        return f"the store was written by another program than StrataMQ; {_HOW}"

    def set(self, enabled: bool) -> None:
        """An operator's decision. Durable on return. Raises OSError."""
        self._file.store({"enabled": enabled})
        self._file.load()


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check. `deleted`: files that the log has deleted; none in a plan."""

    at_ms: int
    facts: CleaningFacts
    decision: Decision
    deleted: tuple[str, ...] = ()
    minimum_offset: int = 0


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """The rule in force. `disabled`: why nothing is deleted, empty when something may be. `at_once`
    and `expired` are what the rules take, or would if retention were enabled: now, and whatever the
    hour."""

    disabled: str
    policy: str
    at_once: Share
    expired: Share


class Cleaner:
    """Blocking; one thread at a time. StrataError of the services is the caller's."""

    def __init__(
        self,
        files: Files,
        services: Services,
        operators: Operators,
        config: JanitorConfig,
        retention: RetentionSwitch,
        watch: ClockWatch,
    ) -> None:
        self.last: Check | None = None
        """The last check that was carried out."""
        self.deleted_files: Counter[str] = Counter()
        """Since the start, by reason."""
        self.freed_bytes = 0
        self.disabled = retention.obstacle()
        """Why nothing may be deleted at all, as of the last look; empty: it may."""
        self._files = files
        self._services = services
        self._operators = operators
        self._config = config
        self._settings = settings_of(config)
        self._retention = retention
        self._watch = watch
        self._finished_ms = watch.previous_ms
        """What the wall showed at the last look that left nothing over for lack of time."""

    @property
    def policy(self) -> str:
        """The settings as a sentence."""
        return str(self._settings)

    def rule(self) -> RetentionRule:
        """The rule in force, and what it takes from the log as it is. Changes nothing."""
        return self._rule(self._read_facts()[1])

    def fate(self, offset: int) -> Outlook:
        """What becomes of the segment that has this offset of the log. Changes nothing.
        OffsetOutOfRangeError when the log has none."""
        facts = self._read_facts(ask_waiting=True)[1]
        return fate_of(offset, facts, self._settings, _local)

    def survey(self) -> tuple[Check, RetentionRule]:
        """What a run would do now, and the rule, by one reading of the facts. Changes nothing."""
        at_ms, facts = self._read_facts(ask_waiting=True)
        return Check(at_ms, facts, decide(facts, self._settings)), self._rule(facts)

    def fates(self, begin: int, end: int, facts: CleaningFacts) -> list[Outlook]:
        """What becomes of the segments [begin, end) of a survey."""
        return fates_of(begin, end, facts, self._settings, _local)

    def set_retention(self, enabled: bool) -> None:
        """An operator's word, durable on return. Raises OSError."""
        self._retention.set(enabled)
        self.disabled = self._retention.obstacle()
        log.info("retention set", extra={"enabled": enabled})

    def plan(self, *, manual: bool = False, trust_clock: bool = False) -> Check:
        """What a run would do now; nothing is changed."""
        newest_ms = newest_message_ms(self._files)
        now = self._watch.read(newest_ms)
        return self._look(manual, now.trusted() if trust_clock else now, newest_ms)

    def run(self, *, manual: bool = False, trust_clock: bool = False) -> Check:
        """Check, and have deleted what may go. `trust_clock`: an operator confirms it."""
        newest_ms = newest_message_ms(self._files)
        look = self._look(manual, self._watch.see(newest_ms, trust=trust_clock), newest_ms)
        decision = look.decision
        if not decision.limited:
            self._finished_ms = look.at_ms
        look = replace(look, minimum_offset=look.facts.segments[0].start)
        if decision.deletions:
            minimum, deleted = self._operators.delete_below(
                decision.delete_below, max_segments=len(decision.deletions), urgent=decision.urgent
            )
            look = replace(look, deleted=deleted, minimum_offset=minimum)
            for done in decision.deletions[: len(deleted)]:
                self.deleted_files[done.reason] += 1
                self.freed_bytes += done.segment.size
                log.info(
                    "segment deleted",
                    extra={
                        "offset": done.segment.start,
                        "reason": done.reason,
                        "detail": done.sentence,
                    },
                )
        before = self.last.decision.alarm if self.last is not None else ""
        if decision.alarm and decision.alarm != before:
            log.error("alarm", extra={"detail": decision.alarm})
        self.last = look
        return look

    def _rule(self, facts: CleaningFacts) -> RetentionRule:
        """A doubt of the clock only puts off what expires by `janitor.clock_grace_ms`: it does not
        count."""
        facts = replace(facts, clock_doubt="")
        at_once = taken(facts, self._settings, manual=False)
        expired = taken(facts, self._settings, manual=True)
        return RetentionRule(facts.disabled, self.policy, at_once, expired)

    def _read_facts(self, *, ask_waiting: bool = False) -> tuple[int, CleaningFacts]:
        """The wall clock, and the facts at that time."""
        newest_ms = newest_message_ms(self._files)
        now = self._watch.read(newest_ms)
        return now.wall_ms, self._facts(False, now, newest_ms, ask_waiting=ask_waiting)

    def _look(self, manual: bool, now: Witness, newest_ms: int | None) -> Check:
        facts = self._facts(manual, now, newest_ms)
        return Check(now.wall_ms, facts, decide(facts, self._settings))

    def _facts(
        self, manual: bool, now: Witness, newest_ms: int | None, *, ask_waiting: bool = False
    ) -> CleaningFacts:
        state, config, now_ms = self._services.log_state(), self._config, now.wall_ms
        space, previous = self._files.space(COMMIT_LOG), self._finished_ms
        reaches = {REPLICATED: replicated_up_to(state), TIERED: tiered_up_to(state)}
        if CONSUMED in config.hold:
            reaches[CONSUMED] = consumed_up_to(
                self._services, config.hold_groups, state.appended_offset
            )
        self.disabled = self._retention.obstacle()
        by_file_time = config.retention_by == "FILE_TIME"
        segments = segment_facts(self._files, state, now_ms, by_file_time=by_file_time)
        waiting: Reach | None = None
        if ask_waiting or any_is_old(segments, now_ms, self._settings):
            waiting = waiting_from(self._files, self._operators)
        return CleaningFacts(
            now_ms=now_ms,
            local=_local(now_ms),
            previous=None if previous is None else _local(previous),
            disk_total_bytes=space.total_bytes,
            disk_used_bytes=max(
                0,
                space.total_bytes - space.available_bytes - leaving_bytes(self._files, state),
            ),
            segments=segments,
            held_at={hold: reach.offset for hold, reach in reaches.items()},
            holders={hold: reach.who for hold, reach in reaches.items()},
            waiting_from=None if waiting is None else waiting.offset,
            waiting_unknown="" if waiting is None else waiting.who,
            manual=manual,
            disabled=self.disabled,
            clock_doubt=now.doubt,
            future_ms=max(0, (newest_ms or 0) - now_ms),
        )


def settings_of(config: JanitorConfig) -> Settings:
    return Settings(
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        delete_hours=frozenset(int(hour) for hour in config.delete_when),
        clean_ratio=config.disk_clean_ratio,
        force_ratio=config.disk_force_ratio,
        max_segments=config.max_segments_per_run,
        clock_tolerance_ms=config.clock_tolerance_ms,
        hold=frozenset(config.hold),
    )


def _local(wall_ms: int) -> datetime:
    """The wall's time in the machine's zone (`TZ`), without one: hours are what people read."""
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().replace(tzinfo=None)
