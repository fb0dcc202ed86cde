"""Whatever the directory contains, the store starts, or refuses with a reason."""

import errno
from collections.abc import Callable
from itertools import product

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.files.port import EntryKind
from stratamq.files.simulated import SimulatedDisk, keep_everything
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory, Node
from stratamq.formats.message_status import SendStatus
from tests.support.disks import write_file
from tests.support.logs import Store, body_for, message, segment_path
from tests.support.sampling import few

pytestmark = pytest.mark.usefixtures("walked_both_ways")

SEGMENT = 2048
Damage = Callable[[SimulatedDisk], None]


@pytest.fixture(scope="module")
def used() -> SimulatedDisk:
    """Three segments and a bit, used by us, killed."""
    store = Store(SEGMENT)
    store.start()
    store.put_all(*[message(b"x" * 300) for _ in range(17)])
    store.pass_time(3_000, ticks=4)
    store.put_all(*[message(b"y" * 300) for _ in range(3)])
    store.kill()
    return store.disk


@pytest.fixture(scope="module")
def foreign(used) -> SimulatedDisk:
    """The same log without anything of ours: as RocketMQ would have left it after a crash."""
    disk = used.image(keep_everything)
    files = disk.files()
    for name in ("lock", "checkpoint"):
        files.unlink(name)
    disk.tree.root.entries.pop("stratamq")
    disk.tree.root.entries.pop("config")
    disk.tree.sync_all()
    return disk.image(keep_everything)


def remove(disk: SimulatedDisk, path: str) -> None:
    holder, _, name = path.rpartition("/")
    disk.tree.directory(holder).entries.pop(name, None)
    disk.tree.directory(holder).durable.pop(name, None)


def replaced(path: str, how: str) -> Damage:
    def damage(disk: SimulatedDisk) -> None:
        node = disk.tree.find(path)
        content = disk.contents(path) if isinstance(node, Inode) else b""
        remove(disk, path)
        if how == "missing":
            return
        if how in ("link", "device"):
            disk.plant(path, EntryKind.LINK if how == "link" else EntryKind.OTHER)
            return
        if how == "directory":
            made: Node = Directory(0)
            made.entries["inside"] = Directory(0)
        else:
            made = Inode(path, 0)
            noise = bytes(range(256)) * (len(content) // 256 + 1)
            made.cache[:] = {
                "empty": b"",
                "half": content[: len(content) // 2],
                "longer": content + b"more",
                "zeros": bytes(len(content)),
                "noise": noise,
            }[how]
            made.flush(made.dirty_pages())
        disk.tree.set(path, made, 0)
        disk.tree.sync_all()

    return damage


def unreadable(operation: str, path: str) -> Damage:
    return lambda disk: disk.fail(operation, path, error=errno.EACCES, repeat=True) and None


def written(store: Store) -> dict[int, bytes]:
    """Segments with any content: an unused one may be deleted at any time."""
    return {base: raw for base, raw in store.segments().items() if any(raw)}


def attempt(disk: SimulatedDisk) -> Store | None:
    """The store if it can be served, after it has proved it; None if it was refused."""
    store = Store(SEGMENT, disk=disk)
    before = written(store)
    try:
        store.start()
    except StoreRefusedError as why:
        assert len(str(why)) > 20
        assert written(store) == before
        return None
    assert store.put(b"served").status is SendStatus.PUT_OK
    return store


def frames_of(disk: SimulatedDisk) -> list[bytes]:
    return Store(SEGMENT, disk=disk).frame_bytes()


LAST = 3 * SEGMENT
HOWS = ("directory", "link", "device", "empty", "half", "longer", "zeros", "noise", "missing")
OURS = (
    "lock",
    "abort",
    "checkpoint",
    "config",
    "config/topics.json",
    "config/topics.json.bak",
    "consumequeue",
    "index",
    "stratamq",
    "stratamq/aside",
    "stratamq/tmp",
    "stratamq/checksums",
    "stratamq/found-clean",
    "stratamq/generations.json",
    "stratamq/queue-offsets.journal",
    "stratamq/queue-offsets.journal.previous",
    "stratamq/queue-offsets.journal.tmp",
)


@pytest.mark.parametrize(("path", "how"), few(product(OURS, HOWS), 50))
def test_a_store_whose_other_files_are_damaged_loses_no_message(used, path, how):
    disk = used.image(keep_everything)
    replaced(path, how)(disk)
    expected = frames_of(disk)
    store = attempt(disk)
    if store is not None:
        assert store.frame_bytes()[:-1] == expected
        store.stop()
        assert disk.tree.find("abort") is None
        store.start()
        assert store.frame_bytes()[:-1] == expected


SERVED = {
    "last segment empty": (replaced(segment_path(LAST), "empty"), False),
    "last segment cut": (replaced(segment_path(LAST), "half"), False),
    "last segment zeros": (replaced(segment_path(LAST), "zeros"), False),
    "last segment noise": (replaced(segment_path(LAST), "noise"), False),
    "stray file": (lambda d: write_file(d.files(), "commitlog/notes.txt", b"?"), True),
    "stray empty file": (lambda d: write_file(d.files(), "commitlog/x.tmp", b""), True),
    "stray directory": (lambda d: d.files().make_directory("commitlog/lost+found/x"), True),
    "stray link": (lambda d: d.plant("commitlog/link", EntryKind.LINK), True),
    "stray device": (lambda d: d.plant("commitlog/socket", EntryKind.OTHER), True),
    "name too large": (lambda d: write_file(d.files(), "commitlog/" + "9" * 20, b"?"), True),
    "no commitlog": (lambda d: remove(d, "commitlog"), False),
}


@pytest.mark.parametrize(("damage", "whole"), SERVED.values(), ids=SERVED)
def test_what_can_be_put_right_is_and_the_store_is_served(used, foreign, damage, whole):
    for original in (used, foreign):
        disk = original.image(keep_everything)
        before = frames_of(disk)
        damage(disk)
        store = attempt(disk)
        if store is None:
            # Noise in the place of a segment can have any length.
            assert not whole
            continue
        kept = store.frame_bytes()[:-1]
        assert kept == before if whole else kept == before[: len(kept)]
        store.stop()
        assert attempt(disk) is not None


REFUSED = {
    "gap": lambda d: remove(d, segment_path(SEGMENT)),
    "two gaps": lambda d: (remove(d, segment_path(SEGMENT)), remove(d, segment_path(LAST))),
    "first segment short": replaced(segment_path(0), "half"),
    "first segment empty": replaced(segment_path(0), "empty"),
    "middle segment long": replaced(segment_path(SEGMENT), "longer"),
    "last segment long": replaced(segment_path(LAST), "longer"),
    "unaligned": lambda d: write_file(d.files(), segment_path(100), bytes(SEGMENT)),
    "segment is a directory": replaced(segment_path(SEGMENT), "directory"),
    "segment is a link": replaced(segment_path(SEGMENT), "link"),
    "segment is a device": replaced(segment_path(LAST), "device"),
    "segment cannot be opened": unreadable("open", segment_path(LAST)),
    "segment cannot be read": unreadable("read", segment_path(LAST)),
    "commitlog is a file": replaced("commitlog", "noise"),
    "commitlog is a link": replaced("commitlog", "link"),
    "commitlog cannot be listed": unreadable("list", "commitlog"),
}


@pytest.mark.parametrize("damage", REFUSED.values(), ids=REFUSED)
def test_what_only_an_operator_can_put_right_is_refused_and_left_alone(used, foreign, damage):
    for original in (used, foreign):
        disk = original.image(keep_everything)
        damage(disk)
        assert attempt(disk) is None


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_place(used, name):
    disk = used.image(keep_everything)
    REFUSED[name](disk)
    with pytest.raises(StoreRefusedError, match=r"commitlog"):
        Store(SEGMENT, disk=disk).start()


def test_a_refused_store_can_be_started_when_it_has_been_put_right(used):
    disk = used.image(keep_everything)
    content = disk.contents(segment_path(SEGMENT))
    expected = frames_of(disk)
    remove(disk, segment_path(SEGMENT))
    assert attempt(disk) is None
    write_file(disk.files(), segment_path(SEGMENT), content)
    store = attempt(disk)
    assert store.frame_bytes()[:-1] == expected


def test_strays_are_moved_where_an_operator_finds_them(used):
    disk = used.image(keep_everything)
    write_file(disk.files(), "commitlog/notes.txt", b"important")
    store = attempt(disk)
    assert b"important" in store.aside().values()
    assert any("notes.txt" in line for line in store.log.report)


@pytest.mark.parametrize("left", [0, 1, 7, 127, 500, SEGMENT - 1])
def test_a_log_of_one_segment_that_was_cut_short_keeps_its_geometry(left):
    """The length of a truncated file must not become the size of all segments."""
    store = Store(SEGMENT)
    store.start()
    store.put_all(*[message(b"x" * 300) for _ in range(4)])
    store.stop()
    content = store.disk.contents(segment_path(0))
    remove(store.disk, segment_path(0))
    write_file(store.disk.files(), segment_path(0), content[:left])
    if not left:
        with pytest.raises(StoreRefusedError, match="has no segment"):
            store.start()
        return
    store.start()
    assert store.log.status().segment_bytes == SEGMENT
    assert store.put(body_for(SEGMENT - 8)).status is SendStatus.PUT_OK


def test_a_foreign_file_too_short_for_a_segment_does_not_set_the_geometry():
    store = Store(SEGMENT)
    write_file(store.disk.files(), segment_path(0), b"12345")
    store.start()
    assert store.log.status().segment_bytes == SEGMENT
    assert store.put(b"x").status is SendStatus.PUT_OK


# --- checkpoint, abort ---


@pytest.mark.parametrize("how", ["missing", "half", "directory", "link", "noise"])
def test_a_damaged_checkpoint_costs_nothing_but_time(foreign, how):
    disk = foreign.image(keep_everything)
    write_file(disk.files(), "checkpoint", bytes(80))
    replaced("checkpoint", how)(disk)
    before = frames_of(disk)
    store = attempt(disk)
    assert store.frame_bytes()[:-1] == before
    assert len(disk.contents("checkpoint")) == 4096


@pytest.mark.parametrize("how", ["empty", "noise", "directory", "link", "device"])
def test_whatever_abort_is_it_means_unclean_and_goes_with_a_clean_stop(used, how):
    disk = used.image(keep_everything)
    replaced("abort", how)(disk)
    store = attempt(disk)
    store.stop()
    assert disk.tree.find("abort") is None


# --- topics.json ---


def topics_of(content: bytes, disk: SimulatedDisk) -> Store:
    remove(disk, "config/topics.json")
    write_file(disk.files(), "config/topics.json", content)
    store = Store(SEGMENT, disk=disk)
    store.start()
    return store


def test_topics_are_read_as_fastjson_writes_them(foreign):
    content = (
        b'{"dataVersion":{"counter":3,"timestamp":1},"topicConfigTable":{'
        b'"orders":{"order":true,"perm":4,"readQueueNums":9,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"orders","topicSysFlag":0,"writeQueueNums":2,"x":{0:5,-1:7}}}}'
    )
    store = topics_of(content, foreign.image(keep_everything))
    config = store.log.topics.get("orders")
    assert (config.read_queues, config.write_queues, config.permission) == (9, 2, 4)
    assert config.ordered
    refused = store.put(b"x")
    assert refused.status is SendStatus.SERVICE_NOT_AVAILABLE
    assert "permission" in str(refused.error)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"topicConfigTable":7}',
        b'{"topicConfigTable":{"orders":7,"":{},"a":[]}}',
        b'{"topicConfigTable":{"orders":{"perm":"six","readQueueNums":-4,"writeQueueNums":1e99}}}',
        b'{"topicConfigTable":{"orders":{"perm":64,"readQueueNums":true,"order":"yes"}}}',
        b'{"dataVersion":[],"topicConfigTable":{}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 50_000,
    ],
)
def test_topics_that_make_no_sense_are_passed_over_and_those_in_the_log_are_served(
    foreign, content
):
    store = topics_of(content, foreign.image(keep_everything))
    assert store.log.topics.get("orders").write_queues >= 1
    assert store.put(b"x").status is SendStatus.PUT_OK
    store.stop()
    store.start()
    assert store.put(b"x").status is SendStatus.PUT_OK


def test_a_directory_where_a_mark_of_ours_would_be_changes_nothing(used):
    disk = used.image(keep_everything)
    disk.files().make_directory("stratamq/found-clean")
    disk.tree.sync_all()
    store = Store(SEGMENT, disk=disk)
    store.start()
    assert store.put(b"more").status is SendStatus.PUT_OK


@pytest.mark.parametrize("how", ["used", "foreign"])
def test_a_store_without_its_log_is_refused_and_goes_on_when_the_log_is_back(how, request):
    """A volume that is not mounted: the store is as it was once it is."""
    disk = request.getfixturevalue(how).image(keep_everything)
    write_file(disk.files(), "index/20200101000000000", b"x")
    whole = Store(SEGMENT, disk=disk.image(keep_everything))
    whole.start()
    frames, queues = whole.frames(), whole.queues()
    log = disk.tree.root.entries["commitlog"]
    disk.tree.root.entries["commitlog"] = Directory(0)
    names = sorted(disk.tree.root.entries)
    store = Store(SEGMENT, disk=disk)
    with pytest.raises(StoreRefusedError, match="has no segment"):
        store.start()
    assert sorted(disk.tree.root.entries) == names
    disk.tree.root.entries["commitlog"] = log
    store.start()
    assert (store.frames(), store.queues()) == (frames, queues)


def test_an_empty_store_that_was_killed_before_its_first_segment_starts_again():
    store = Store(SEGMENT)
    store.start()
    for path in list(store.segments()):
        remove(store.disk, segment_path(path))
    store.kill()
    store.start()
    assert store.put(b"x").status is SendStatus.PUT_OK


def test_a_log_whose_newest_segment_is_missing_is_refused_and_goes_on_when_it_is_back(used):
    disk = used.image(keep_everything)
    store = Store(SEGMENT, disk=disk)
    store.start()
    store.stop()
    frames = store.frames()
    newest = max(base for base in store.segments() if base <= frames[-1].physical_offset)
    content = disk.contents(segment_path(newest))
    for base in store.segments():
        if base >= newest:
            remove(disk, segment_path(base))
    with pytest.raises(StoreRefusedError, match=f"{newest:020d} is missing"):
        store.start()
    write_file(disk.files(), segment_path(newest), content)
    store.start()
    assert store.frames() == frames


def test_a_log_whose_first_message_was_refused_starts_again():
    """Its checkpoint names no message, or the log would be missed."""
    store = Store()
    store.start()
    assert store.put(bytes(5 << 20)).status is SendStatus.MESSAGE_ILLEGAL
    store.pass_time(1_000, ticks=3)
    store.kill()
    store.start()
    assert store.put(b"first").status is SendStatus.PUT_OK
