"""The permissions file as a service uses it: read again when it has changed, and quick to ask."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from stratamq.errors import ConfigurationError
from stratamq.files.configured_files import FileStamp, read_whole, stamp_of
from stratamq.rpc.permission_file import (
    EVERYONE,
    LARGEST_FILE_BYTES,
    LARGEST_NAME,
    TEAM,
    Grant,
    Permissions,
    parse,
)
from stratamq.rpc.permissions import Permission

log = logging.getLogger(__name__)

SETTING = "access.file"
LOOK_S = 0.5
MAX_ANSWERS = 65_536


class PermissionTable:
    """What one version of the file says, with an index by user: a call costs the same however many
    users there are. Thread-safe."""

    def __init__(self, permissions: Permissions, version: int) -> None:
        self.version = version
        self._users = {
            token.digest: user for user, tokens in permissions.users.items() for token in tokens
        }
        self._secrets = {
            user: [token.secret for token in tokens if token.secret]
            for user, tokens in permissions.users.items()
        }
        self._known = {*permissions.users, *(rule.who for rule in permissions.rules)}
        self._known.update(*permissions.teams.values())
        self._teams: dict[str, list[str]] = {}
        for team, users in permissions.teams.items():
            for user in users:
                self._teams.setdefault(user, []).append(TEAM + team)
        self._rules: dict[str, list[Grant]] = {}
        for rule in permissions.rules:
            self._rules.setdefault(rule.who, []).append(rule)
        self._answers: dict[tuple[str, Permission], bool] = {}

    def user_of(self, digest: str) -> str:
        """Return the user of a token; "" for an unknown token."""
        return self._users.get(digest, "")

    def secrets_of(self, user: str) -> Sequence[str]:
        """The tokens with which the user signs."""
        return self._secrets.get(user, ())

    def knows(self, user: str) -> bool:
        """Whether the file names the user: with a token, in a team or in a rule."""
        return user in self._known

    def permissions_of(self, who: str) -> list[Permission]:
        """What the user's rules give."""
        rules = (rule for name in self._names_of(who) for rule in self._rules.get(name, ()))
        return [Permission(rule.kind, rule.verb, rule.pattern) for rule in rules]

    def allows(self, who: str, wanted: Permission) -> bool:
        """Whether a rule gives it."""
        if len(wanted.name) > LARGEST_NAME:
            return False  # nothing has such a name: do not cache it
        key = who, wanted
        known = self._answers.get(key)
        if known is not None:
            return known
        found = any(
            rule.allows(wanted)
            for name in self._names_of(who)
            for rule in self._rules.get(name, ())
        )
        if len(self._answers) >= MAX_ANSWERS:
            self._answers.clear()
        self._answers[key] = found
        return found

    def _names_of(self, who: str) -> list[str]:
        """Like `Permissions.names_of`."""
        is_user = who != EVERYONE and not who.startswith(TEAM)
        return [EVERYONE, *([who, *self._teams.get(who, ())] if is_user else [])]


class PermissionSource:
    """The table of the file as it is now. What cannot be understood is not used: the last good one
    is. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """ConfigurationError when the file is not there, or is none."""
        self.path = path
        self._problem = ""
        """Why the file is not used, if it is not."""
        self._looking = threading.Lock()
        self._stamp = self._stamped()
        self._table = PermissionTable(self._read(), 0)

    def current(self) -> PermissionTable:
        return self._table

    def keep_current(self, interval_s: float = LOOK_S) -> threading.Event:
        """Look at the file in a thread from now on, whether anyone calls or not: a service that is
        asked nothing for an hour must not begin with what was allowed then. A large file takes
        longer than an event loop may be blocked. It stops when what is returned is set."""
        ended = threading.Event()

        def keep_looking() -> None:
            while not ended.wait(interval_s):
                self.look()

        threading.Thread(target=keep_looking, name="permissions", daemon=True).start()
        return ended

    def look(self) -> None:
        """Use what is in the file now."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        try:
            stamp = self._stamped()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._table = PermissionTable(self._read(), self._table.version + 1)
            log.info("permissions reloaded", extra={"file": str(self.path)})
            self._problem = ""
        except ConfigurationError as error:
            if str(error) != self._problem:  # once, and not at each look
                self._problem = str(error)
                reason = {"reason": self._problem}
                log.error("new permissions rejected, the previous ones stay in force", extra=reason)

    def _stamped(self) -> FileStamp:
        return stamp_of(self.path, SETTING)

    def _read(self) -> Permissions:
        return parse(read_whole(self.path, LARGEST_FILE_BYTES, SETTING), str(self.path))
