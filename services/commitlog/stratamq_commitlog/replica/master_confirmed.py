"""On a slave: the last known value of its master's *confirmed*.

    stratamq/master-confirmed.json   {"offset": log offset}

Two rules stand on it. A slave shows its own consumers nothing above, so that what they read does
not vanish when another broker is promoted. And a slave whose log ends below is not promoted: what
is missing was acknowledged, and consumers have seen it.

    event                                   the offset                              durable
    the slave opens with its master         the master's, and what was known of     before the first
                                            the history that stays                  byte is appended
    the master's confirmed moves            the greater                             within a second
    a master becomes a slave                its own confirmed                       before the role
    the log is opened as a slave's          the file's; the checkpoint's, which is  –
                                            a lower bound that is saved each second
    the same, without a file, of a member   the checkpoint's: its directory was     –
                                            a master's, put back from a backup
    the broker is a master, or its master   not known: nothing is bounded           file removed
    is RocketMQ's, which reports no such
    offset
"""

from collections.abc import Iterable

from stratamq.files.metadata import MetadataFile, remove_metadata
from stratamq.files.port import Files
from stratamq.formats.generation_number import Generation
from stratamq_commitlog.recovery.own_state import MASTER_CONFIRMED_PATH


def after_opening(
    known: int | None,
    confirmed: int,
    received: int,
    own: Iterable[Generation],
    masters: Iterable[Generation],
) -> int:
    """What is known once a slave has compared its history with a master that sent `received`.

    `known` is the value before, None: unknown, then its own `confirmed` counts. What an earlier
    master confirmed holds as far as its history continues: up to the start of the first generation
    of the master's list that is not in the slave's own.
    """
    listed = {generation.number for generation in own}
    starts = [one.start for one in masters if one.number not in listed]
    before = confirmed if known is None else known
    return max(received, min([before, *starts]))


class MasterConfirmed:
    """`value` None: the master's confirmed is not known, and bounds nothing."""

    def __init__(self, files: Files) -> None:
        self.value: int | None = None
        self._replacements = 0
        """So many other offsets are being written to the file, or are in it: `value` is then not
        stored."""
        self._files = files
        self._stored: int | None = None

    def load(self, *, checkpoint_confirmed: int, end: int, is_member: bool) -> None:
        """At the opening of a slave's log that ends at `end`."""
        document = MetadataFile(self._files, MASTER_CONFIRMED_PATH).load()
        self.forget()
        if document is not None:
            self._stored = int(str(document["offset"]))
            self.value = max(self._stored, min(checkpoint_confirmed, end))
        elif is_member:
            self.value = min(checkpoint_confirmed, end)

    def replace(self) -> None:
        """Another offset, or none, is about to be written; `begin`, `forget`, `load` or `retain`
        ends that."""
        self._replacements += 1

    def retain(self) -> None:
        """It could not be written: `value` stays in force."""
        self._replacements -= 1

    def begin(self, offset: int | None) -> None:
        """A master is followed whose *confirmed* is `offset`; None: it is not known."""
        self.value = offset
        self._replacements -= 1
        if offset is None:
            self._stored = None

    def learn(self, offset: int) -> None:
        """The master that is followed has confirmed up to `offset`."""
        if self.value is not None:
            self.value = max(self.value, offset)

    def needs_store(self, flushed: int) -> bool:
        """Whether a crash could lose the fact that this log lacks something: what is below its own
        durable end it has."""
        if self.value is None or self._replacements:
            return False
        return self.value > max(flushed, self._stored or 0)

    def store(self, offset: int) -> None:
        """Blocking, durable on return."""
        if offset != self._stored:
            MetadataFile(self._files, MASTER_CONFIRMED_PATH).store({"offset": offset})
            self._stored = offset

    def remove(self) -> None:
        """Blocking, durable on return: the file goes; `forget` follows on the engine's thread."""
        remove_metadata(self._files, MASTER_CONFIRMED_PATH)

    def forget(self) -> None:
        """The broker is a master, or follows one of RocketMQ's: nothing is bounded."""
        self.value = self._stored = None
        self._replacements = 0
