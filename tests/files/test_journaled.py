"""A large file and its journal: which changes follow which content, if others write it, too."""

import hashlib
import random
from collections.abc import Iterable

from stratamq.files.journaled import Journaled
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.simulated import (
    SimulatedClock,
    SimulatedDisk,
    SimulatedWorker,
    keep_everything,
    keep_nothing,
)
from stratamq.formats.json_files import format_json
from stratamq.formats.store_paths import CHECKSUMS_DIRECTORY
from tests.support.disks import edit_file, read_file, write_file

PATH = "config/numbers.json"
SMALL_BYTES = 4096
MANY = SMALL_BYTES


class Numbers:
    """A table of numbers by name; `Journaled` keeps it."""

    def __init__(self, disk: SimulatedDisk, *, foreign: bool = False, small_bytes: int = 0) -> None:
        self.values: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self._changed: dict[str, int] = {}
        self._worker = SimulatedWorker(random.Random(1))
        files = disk.files()
        self.journaled: Journaled[str, int] = Journaled(
            files,
            MetadataFile(files, PATH),
            "numbers",
            self,
            SimulatedClock(),
            small_bytes=small_bytes,
        )
        document, apply = self.journaled.load(foreign=foreign, change=self.values.update)
        self.values.update((document or {}).get("numbers", {}))
        apply()

    def put(self, name: str, value: int = 1) -> bool:
        """Whether it was saved."""
        self.values[name] = self._changed[name] = value
        answers: list[BaseException | None] = []
        self.journaled.save(self._worker.submit, answers.append)
        self._worker.run_until_idle()
        self.errors += filter(None, answers)
        return answers == [None]

    def grow(self) -> None:
        """So many that the file is no longer a small one; not saved yet."""
        for number in range(MANY):
            self.values[f"many-{number}"] = self._changed[f"many-{number}"] = number

    def write_file(self) -> None:
        self.journaled.tick(self._worker.submit)
        self._worker.run_until_idle()

    # --- as `Journaled` sees it ---

    def take_changed(self) -> dict[str, int]:
        changed, self._changed = self._changed, {}
        return changed

    def __len__(self) -> int:
        return len(self.values)

    def entries(self, place: int, most: int) -> tuple[list[tuple[str, int]], int]:
        some = list(self.values.items())[place : place + most]
        return some, place + len(some)

    def encode(self, entries: Iterable[tuple[str, int]]) -> JsonObject:
        return dict(entries)

    def document(self) -> JsonObject:
        return {"numbers": dict(self.values)}

    def head(self) -> JsonObject:
        return {}


def with_a_change() -> SimulatedDisk:
    """A file, and a journal that has one change of it."""
    disk = SimulatedDisk()
    first = Numbers(disk)
    first.put("in the file")
    first.journaled.save_blocking()
    assert first.put("in the journal")
    assert b"journal" not in disk.contents(PATH)
    return disk


def test_while_the_content_is_in_doubt_the_journal_of_the_older_one_stays():
    """The new content is in its place and may be gone after a power loss."""
    disk = with_a_change()
    numbers = Numbers(disk, small_bytes=SMALL_BYTES)
    disk.fail("sync_directory", "config")
    assert not numbers.put("in the new file")
    assert b"in the new file" in disk.contents(PATH)
    numbers.grow()
    assert not numbers.put("late"), "it waits until the file itself is written"
    for keep in (keep_nothing, keep_everything):
        assert Numbers(disk.image(keep)).values["in the journal"] == 1
    numbers.write_file()
    assert numbers.put("late")
    assert Numbers(disk.image(keep_nothing)).values == numbers.values


def test_changes_do_not_follow_what_an_operator_wrote_while_the_content_was_in_doubt():
    disk = with_a_change()
    numbers = Numbers(disk, small_bytes=SMALL_BYTES)
    disk.fail("replace", f"{PATH}*")
    assert not numbers.put("not written")
    edit_file(disk.files(), PATH, format_json({"numbers": {"edited": 5}}))
    numbers.grow()
    assert not numbers.put("late"), "it waits until the file itself is written"
    assert Numbers(disk.image(keep_nothing)).values == {"edited": 5}


def test_what_rocketmq_wrote_is_vouched_for_before_changes_of_it_are_saved():
    """The checksum beside it is of a release that kept no time: what fits it would count first."""
    disk = SimulatedDisk()
    first = Numbers(disk)
    first.put("ours")
    first.journaled.save_blocking()
    files = disk.files()
    ours = hashlib.sha256(read_file(files, PATH)).hexdigest()
    MetadataFile(files, f"{CHECKSUMS_DIRECTORY}/{PATH}").store({"contents": [ours]})
    files.replace(PATH, f"{PATH}.bak")  # what RocketMQ does with the file before it writes
    write_file(files, PATH, format_json({"numbers": {"theirs": 7}}))
    numbers = Numbers(disk, foreign=True)
    assert numbers.values == {"theirs": 7}
    assert numbers.put("late")
    assert Numbers(disk.image(keep_nothing)).values == {"theirs": 7, "late": 1}
