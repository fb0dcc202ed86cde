"""What the log keeps of its cluster: who this directory is, and which members are in force.

    stratamq/identity.json   see `stratamq.store.identity`
    stratamq/members.json    {"member", "members": {"version", "required", "members"}}; none of a
                             broker that never had configured members

The replication service decides; the log makes it durable, and holds to it by itself: a promise
names an active member, a term is opened by its own member alone, k is the members' k.
"""

from collections.abc import Callable
from dataclasses import replace

from stratamq.errors import InvalidRequestError, NotWritableError, StrataError
from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Files, Random, Worker
from stratamq.formats.generation_number import slot_of
from stratamq.formats.members import Members, decode_members, members_fault
from stratamq.formats.store_paths import MEMBERS_PATH
from stratamq.store.identity import Identity, load_identity, new_identity, store_identity

Done = Callable[[StrataError | None], None]


class Membership:
    """`load` first. What is read here is durable. `required`: k without members."""

    def __init__(
        self, files: Files, worker: Worker, required: int, changed: Callable[[], None]
    ) -> None:
        """`changed` hears that other members are in force, or that this one has joined."""
        self.identity = Identity(0)
        self.members: Members | None = None
        self.member = ""
        """This broker's name among them."""
        self.damage = ""
        """Why it is not known which members were in force."""
        self._coming: Members | None = None
        """The latest that are being written: in force once they are durable."""
        self._files = files
        self._worker = worker
        self._required = required
        self._changed = changed
        self._file = MetadataFile(files, MEMBERS_PATH)

    def load(self, random: Random) -> None:
        """Blocking. A directory without an identity gets one, durable on return."""
        identity = load_identity(self._files)
        if identity is None:
            identity = new_identity(random)
            store_identity(self._files, identity)
        self.identity = identity
        document = self._file.load()
        found = self._file.found
        damaged = found.outcome is LoadOutcome.DAMAGED
        if damaged or (found.outcome is LoadOutcome.USED_PREVIOUS and found.faults):
            # The list before the last: a removed member would be one again.
            self.damage = "; ".join(found.faults)
        if document is None:
            return
        try:
            members, member = decode_members(document["members"]), str(document["member"])
            if members.find(member) is None:
                raise ValueError(f"{member!r} is no member")
            self.members, self.member = members, member
        except (KeyError, TypeError, ValueError) as error:
            self.damage = f"{MEMBERS_PATH}: {error!r}"

    @property
    def rejoining(self) -> bool:
        """The directory is new in the cluster: it is not counted in the quorum until it has
        joined.
        """
        if self.members is None:
            return False
        member = self.members.find(self.member)
        assert member is not None
        joined = self.identity.joined_as == self.member
        return not joined or self.identity.joined_version < member.since

    @property
    def removed(self) -> bool:
        """An operator declared this broker dead for good."""
        return self.members is not None and not self.members.is_active(self.member)

    @property
    def required(self) -> int:
        """So many slaves acknowledge before PUT_OK of a SYNC_MASTER."""
        return self._required if self.members is None else self.members.required

    @property
    def slot(self) -> int | None:
        """None without members."""
        member = self.members.find(self.member) if self.members is not None else None
        return member.slot if member is not None else None

    def candidate_fault(self, candidate: str, term: int) -> str:
        """Why `term` cannot be promised to `candidate`; "" if it can."""
        if self.members is None:
            return "" if not candidate else "no members are configured: nothing can be promised"
        member = self.members.find(candidate)
        stays = self._coming is None or self._coming.counts(candidate)
        if member is None or not self.members.counts(candidate) or not stays:
            return f"{candidate!r} is no active member"
        if slot_of(term) != member.slot:
            return f"term {term} does not belong to {candidate}, the member of slot {member.slot}"
        return ""

    def forget_restored(self) -> None:
        """Role and term are those of a new directory now. Durable on return."""
        self._store_identity(replace(self.identity, restored=False))

    def forget_joined(self) -> None:
        """Do not count the directory in the quorum until it has joined again. Durable on return."""
        if self.identity.joined_as:
            self._store_identity(replace(self.identity, joined_as="", joined_version=0))

    def put(self, members: Members, member: str, done: Done) -> None:
        """`done(None)` once they are durable; InvalidRequestError for an older version or another
        list of the same one."""
        fault = members_fault(members)
        known = members.find(member)
        now = self._coming or self.members
        if fault or known is None:
            done(InvalidRequestError(fault or f"this broker, {member!r}, is no member"))
        elif now is not None and members.version < now.version:
            done(NotWritableError(f"members of version {now.version} are in force", "members"))
        elif now is not None and members.version == now.version and not members.agrees(now):
            done(
                NotWritableError(f"other members of version {now.version} are in force", "members")
            )
        else:
            document = {"member": member, "members": members.encode()}

            def swap() -> None:
                self.members, self.member, self.damage = members, member, ""

            def ended(error: StrataError | None) -> None:
                if self._coming is members:
                    self._coming = None
                done(error)

            self._coming = members
            self._change(lambda: self._file.store(document), swap, ended)

    def set_joined(self, joined: bool, done: Done) -> None:
        """`done(None)` once it is durable that the directory counts as its member, or does not."""
        version = self.members.version if self.members is not None else 0
        identity = replace(self.identity, joined_as="", joined_version=0)
        if joined:
            identity = replace(identity, joined_as=self.member, joined_version=version)

        def swap() -> None:
            self.identity = identity

        self._change(lambda: store_identity(self._files, identity), swap, done)

    def _store_identity(self, identity: Identity) -> None:
        store_identity(self._files, identity)
        self.identity = identity

    def _change(self, persist: Callable[[], None], swap: Callable[[], None], done: Done) -> None:
        def persisted(_: None, error: BaseException | None) -> None:
            if isinstance(error, OSError):
                sentence = f"the cluster's state could not be written: {error.strerror or error}"
                done(NotWritableError(sentence, "members"))
            elif error is not None:
                raise error
            else:
                swap()
                self._changed()
                done(None)

        self._worker.submit(persist, persisted)
