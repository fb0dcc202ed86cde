"""The identity of a store directory: a random number, created with the directory.

    stratamq/identity.json   {"identity", "joined_as", "joined_version", "restored"}

`joined_as` is the member that the directory counts as in its cluster, as of the members' version
`joined_version`; "" while it is not counted in the quorum: it is new, or was restored from a
backup, and has no record of what it promised and acknowledged. `restored`: the next start forgets
role and term.
"""

from dataclasses import dataclass, replace

from stratamq.errors import StoreRefusedError
from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Files, Random
from stratamq.formats.store_paths import IDENTITY_PATH
from stratamq.store.confirmed import LOCK_PATH

IDENTITY_BITS = 63


@dataclass(frozen=True, slots=True)
class Identity:
    number: int
    joined_as: str = ""
    joined_version: int = 0
    restored: bool = False


def new_identity(random: Random) -> Identity:
    return Identity(random.getrandbits(IDENTITY_BITS))


def load_identity(files: Files) -> Identity | None:
    """None where there is none, or none that can be trusted: the directory is a new one then."""
    file = MetadataFile(files, IDENTITY_PATH)
    document = file.load()
    if document is None or (file.found.outcome is LoadOutcome.USED_PREVIOUS and file.found.faults):
        return None
    number, joined_as = document.get("identity"), document.get("joined_as")
    version = document.get("joined_version")
    if isinstance(number, bool) or not isinstance(number, int) or number >> IDENTITY_BITS:
        return None
    if not isinstance(joined_as, str) or not isinstance(version, int):
        return None
    return Identity(number, joined_as, version, document.get("restored") is True)


def store_identity(files: Files, identity: Identity) -> None:
    """Durable on return."""
    MetadataFile(files, IDENTITY_PATH).store(
        {
            "identity": identity.number,
            "joined_as": identity.joined_as,
            "joined_version": identity.joined_version,
            "restored": identity.restored,
        }
    )


def mark_restored(files: Files, random: Random) -> Identity:
    """Give the directory of a stopped broker, which was put back from a backup, a new identity.
    Durable on return. StoreRefusedError while a process holds the store."""
    try:
        file = files.open(LOCK_PATH)
    except FileNotFoundError as error:
        raise StoreRefusedError("this directory holds no store") from error
    try:
        text = file.read(0, file.size)
    finally:
        file.close()
    try:
        lock = files.lock(LOCK_PATH, text)
    except BlockingIOError as error:
        raise StoreRefusedError(
            "the store is in use: stop the broker that runs on it before it is marked as restored"
        ) from error
    try:
        identity = replace(new_identity(random), restored=True)
        store_identity(files, identity)
    finally:
        lock.close()
    return identity
