"""This broker among the others of its cluster: how it stands, and what they answer.

The log is the authority: this broker's peer status is what the log last reported.
"""

import asyncio
import contextlib
import logging

from stratamq.errors import StrataError, UnavailableError
from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.follow.own_log import OwnLog
from stratamq.formats.log_state import LogState, Role
from stratamq.formats.members import Members, configured_members
from stratamq.formats.replication_peers import PeerStatus, peer_status_of
from stratamq.formats.store_paths import MASTER_ROLE_PATH
from stratamq_ha.config import HaConfig
from stratamq_ha.master import Master
from stratamq_ha.own_log import OwnLogView
from stratamq_ha.peer_decisions import PeerAnswer
from stratamq_ha.peers import ask_all
from stratamq_ha.slave import Slave

ATTEMPTS, PAUSE_S = 15, 0.2
"""How often, and at what pause, an operator's command asks the log and the other members."""
ASKING = "the other members (ha.members) are being asked whether one of them was promoted"
log = logging.getLogger(__name__)
MASTERS = {role.name: role for role in (Role.ASYNC_MASTER, Role.SYNC_MASTER)}


class MasterRole:
    """On a slave: whether its master is, or was, an ASYNC_MASTER or a SYNC_MASTER.

        stratamq/master-role.json   {"role": "SYNC_MASTER"}

    A promotion without a named role makes the slave what the lost master was. The role is kept on
    disk: a slave that was started again after the master's loss cannot ask, and as an ASYNC_MASTER
    it would answer PUT_OK for messages that no other member has. `value` None: no master was ever
    heard of. The file has one writer, this service.
    """

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


class Cluster:
    """`instance`: at random, for this process; `member`: this broker's name among the configured
    members, "" without. Of one event loop."""

    def __init__(
        self,
        config: HaConfig,
        own: OwnLog,
        view: OwnLogView,
        master: Master,
        slave: Slave,
        master_role: MasterRole,
        instance: int,
        member: str,
    ) -> None:
        self.answers: list[PeerAnswer] = []
        """The other members' last answers."""
        self.one_at_a_time = asyncio.Lock()
        """Held while the broker's role or members change."""
        self.changed = asyncio.Event()
        """Something was heard or done: look now whether the role is still right."""
        self.master_role = master_role
        self._longer = (0, "")
        self._config = config
        self._own = own
        self._view = view
        self._master = master
        self._slave = slave
        self._instance = instance
        self._member = member

    def peer_status(self, facts: LogState) -> PeerStatus:
        """How this broker stands."""
        end = max(facts.appended_offset, self._view.view.shippable)
        follows = self._slave.address(facts) if facts.role is Role.SLAVE else ""
        addresses = self._master.log_address, self._master.address
        return peer_status_of(facts, self._instance, end, *addresses, follows)

    def found_longer(self, facts: LogState, sentence: str) -> None:
        """A slave has more of this log's history than this log, as in `facts`."""
        self._longer = facts.term, sentence

    def longer(self, facts: LogState) -> str:
        """Why a slave was refused that has more than this log; "" if none was. A promotion gives
        up what slaves had more, whatever was found by facts from before it."""
        term, sentence = self._longer
        return sentence if term == facts.term else ""

    def configured(self, facts: LogState) -> Members | None:
        """The members by the settings, whatever is in force."""
        named = self._config.named_members
        return configured_members(named, facts.required_replicas) if named else None

    async def keep_members(self, facts: LogState) -> LogState:
        """The members are durable in the log before any exchange with another member: first the
        configured members, later with the configured addresses."""
        configured, now = self.configured(facts), facts.members
        wanted = now
        if configured is not None:
            wanted = configured if now is None else now.with_addresses_of(configured)
        if wanted is not None and (wanted != now or self._member not in ("", facts.member)):
            await self._own.put_members(wanted, self._member or facts.member)
            facts = await self.facts()
            # The master that it follows has it under no name, or under another.
            self._slave.drop()
        members = facts.members
        has_peers = members is not None and bool(members.others(facts.member))
        if facts.role is Role.SLAVE or facts.has_peers is has_peers:
            return facts
        await self._own.hold(ASKING if has_peers else "", has_peers=has_peers)
        return await self.facts()

    async def facts(self) -> LogState:
        """StrataError when the log does not answer."""
        facts = await self._own.facts()
        self._view.learned(facts)
        if facts.role is None:
            raise UnavailableError("the log does not report its role")
        return facts

    async def facts_soon(self) -> LogState:
        """The same, for an operator who may have started the log a moment ago."""
        for _ in range(ATTEMPTS):
            with contextlib.suppress(UnavailableError):
                return await self.facts()
            await asyncio.sleep(PAUSE_S)
        return await self.facts()

    async def ask(self, own: PeerStatus, *, master_too: bool) -> list[PeerAnswer]:
        """Every other member's answer; `master_too`: and that of the master it follows."""
        followed = self._followed(own) if master_too else []
        members = own.members.others(own.member) if own.members is not None else ()
        theirs = [member.address for member in members]
        answers = await ask_all(list(dict.fromkeys([*theirs, *followed])), own)
        self.answers = [one for one in answers if one.address in theirs]
        for one in answers:
            if one.peer_status is not None:
                self.learn(one.peer_status, own.name)
            if one.peer_status is not None and one.address == own.follows:
                self._slave.learn_of_master(one.peer_status)
                if one.peer_status.is_master:
                    await self.master_role.learn(one.peer_status.role)
        return answers

    def learn(self, theirs: PeerStatus, name: str) -> None:
        """Another broker's peer status has come. `name`: this cluster's; others are passed over."""
        if theirs.name == name:
            self._master.slaves.heard(theirs)

    def _followed(self, own: PeerStatus) -> list[str]:
        """The master, if it is one that answers questions."""
        ours = self._config.master_kind == "STRATAMQ"
        return [own.follows] if ours and own.follows and not own.is_master else []
