"""Whether anything may be deleted at all: a setting, an operator's word, or the store's origin.

The first that decides:

    janitor.enabled                    true or false, when it was set
    stratamq/retention.json            {"enabled"}: `stratamq janitor enable` and `disable`; a file
                                       that cannot be trusted counts as disabled
    origin                             a store that StrataMQ made itself: enabled; one that another
                                       program made, or has held since: disabled
"""

from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import RETENTION_PATH
from stratamq.store.origin import is_created_here

_HOW = "`stratamq janitor enable` lets it delete"


class RetentionSwitch:
    """Not thread-safe. `setting`: janitor.enabled."""

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
        """An operator's word. Durable on return. Raises OSError."""
        self._file.store({"enabled": enabled})
        self._file.load()
