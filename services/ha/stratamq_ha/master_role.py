"""On a slave: whether its master is, or was, an ASYNC_MASTER or a SYNC_MASTER.

    stratamq/master-role.json   {"role": "SYNC_MASTER"}

A promotion without a named role makes the slave what the lost master was. It is kept on disk: a
slave that was started again after the master's loss cannot ask, and as an ASYNC_MASTER it would
answer PUT_OK for messages that no other member has.
"""

import asyncio
import logging

from stratamq.errors import StrataError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.broker_role import Role
from stratamq.formats.store_paths import MASTER_ROLE_PATH

log = logging.getLogger(__name__)
MASTERS = {role.name: role for role in (Role.ASYNC_MASTER, Role.SYNC_MASTER)}


class MasterRole:
    """`value` None: no master was ever heard of. Its file has one writer, this service."""

    def __init__(self, files: Files) -> None:
        """Blocking."""
        self._file = MetadataFile(files, MASTER_ROLE_PATH)
        document = self._file.load()
        self.value = MASTERS.get(str(document["role"])) if document is not None else None
        self._stored = self.value
        self._one_at_a_time = asyncio.Lock()

    async def learn(self, role: Role) -> None:
        """The master has answered. What cannot be written is tried again with the next answer."""
        self.value = role
        async with self._one_at_a_time:
            if role is self._stored:
                return
            try:
                await asyncio.to_thread(self._file.store, {"role": role.name})
            except (OSError, StrataError) as error:
                log.warning("the master's role is not kept", extra={"reason": str(error)})
            else:
                self._stored = role
