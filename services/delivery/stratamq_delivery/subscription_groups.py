"""RocketMQ's `config/subscriptionGroup.json`: how groups are served.

    {"dataVersion": …, "subscriptionGroupTable": {"billing": {"groupName": "billing",
     "consumeEnable": true, "consumeMessageOrderly": false, "retryMaxTimes": 16, …}}}

The settings of groups are records in the log (`group_settings.py`); the file says the same to a
RocketMQ broker that takes over. A file that another program wrote is read once: its groups get
settings here, unless they have some, or RocketMQ's defaults, which count without settings. What
the file has besides them stays.
"""

from collections.abc import Callable, Mapping

from stratamq.files.metadata import JsonObject, LoadOutcome, MetadataFile
from stratamq.files.port import Clock, Files
from stratamq.follow.own_appends import OwnAppends
from stratamq.formats.json_files import DEFAULT_RETRIES, NEW_GROUP
from stratamq.formats.store_paths import SUBSCRIPTION_GROUPS_PATH
from stratamq.formats.text import LONGEST_NAME_BYTES
from stratamq_delivery.entries import Configured
from stratamq_delivery.group_settings import SettingsOfGroups, place_of
from stratamq_delivery.shared_groups import SharedGroups

_TABLE = "subscriptionGroupTable"
MAX_RETRIES = 9_999
READ_AT_ONCE = 1_000
"""Groups of another program's file that get their settings in one tick: 3 ms."""


def settings_of(name: str, entry: object) -> Configured | None:
    """What RocketMQ's entry of a group says. None: nothing but the defaults, or nothing at all."""
    if not isinstance(entry, dict) or not 0 < len(name.encode()) <= LONGEST_NAME_BYTES:
        return None
    retries = entry.get("retryMaxTimes")
    if isinstance(retries, bool) or not isinstance(retries, int) or retries == DEFAULT_RETRIES:
        attempts = 0
    else:
        attempts = max(0, min(retries, MAX_RETRIES)) + 1
    found = Configured(
        ordered=entry.get("consumeMessageOrderly") is True,
        attempts=attempts,
        enabled=entry.get("consumeEnable") is not False,
    )
    return None if found == Configured() else found


def document_of(
    kept: JsonObject, settings: Mapping[str, Configured], attempts: int, now_ms: int
) -> JsonObject:
    """The file with these settings, and what else it has. `attempts`: of groups whose settings name
    none."""
    known = kept.get(_TABLE)
    known = known if isinstance(known, dict) else {}
    # A group with settings that has none here: they were deleted.
    table = {name: entry for name, entry in known.items() if settings_of(name, entry) is None}
    for name, one in settings.items():
        entry = known.get(name)
        table[name] = {
            **NEW_GROUP,
            **(entry if isinstance(entry, dict) else {}),
            "groupName": name,
            "consumeEnable": one.enabled,
            "consumeMessageOrderly": one.ordered,
            "retryMaxTimes": (one.attempts or attempts) - 1,
        }
    before = kept.get("dataVersion")
    before = before if isinstance(before, dict) else {}
    counter = before.get("counter")
    version = {
        **before,
        "counter": counter + 1 if isinstance(counter, int) else 1,
        "timestamp": now_ms,
    }
    return {**kept, "dataVersion": version, _TABLE: dict(sorted(table.items()))}


class SubscriptionGroups:
    """Belongs to the event loop of the fold, except for what `news` returns."""

    def __init__(
        self,
        groups: SharedGroups,
        appends: OwnAppends,
        files: Files,
        clock: Clock,
        attempts: int,
    ) -> None:
        self._file = MetadataFile(files, SUBSCRIPTION_GROUPS_PATH)
        self._groups = groups
        self._appends = appends
        self._clock = clock
        self._attempts = attempts
        self._written_version = 0
        self._to_read: dict[str, Configured] = {}
        """What another program's file says, and is not in the log yet."""

    @property
    def _settings(self) -> SettingsOfGroups:
        return self._groups.settings

    def load(self) -> None:
        document = self._file.load() or {}
        table = document.get(_TABLE)
        if self._file.found.outcome is LoadOutcome.UNVERIFIED and isinstance(table, dict):
            found = {name: settings_of(name, entry) for name, entry in table.items()}
            self._to_read = {name: one for name, one in found.items() if one is not None}

    def read_on(self) -> bool:
        """Decide, on a master, what another program's file says of groups without settings. True
        when something was decided."""
        if not self._to_read or not self._appends.is_active:
            return False
        decided = False
        for name in [*self._to_read][:READ_AT_ONCE]:
            if name in self._settings.folded:
                del self._to_read[name]
            elif self._settings.of(name) is None:
                # Again after each change of the master, until the log has it.
                self._groups.decide(place_of(name), self._to_read[name])
                decided = True
        return decided

    def news(self) -> Callable[[], None] | None:
        """What a worker is to write, when the log has flushed what the fold has seen. None: the
        file says it, or is still to be read."""
        version = self._settings.version
        if self._to_read or version == self._written_version:
            return None
        self._written_version = version
        settings, now_ms = self._settings.folded.copy(), self._clock.wall_ms()
        return lambda: self._write(settings, now_ms)

    def _write(self, settings: Mapping[str, Configured], now_ms: int) -> None:
        kept = self._file.load() or {}
        document = document_of(kept, settings, self._attempts, now_ms)
        if document[_TABLE] != kept.get(_TABLE):
            self._file.store(document)
