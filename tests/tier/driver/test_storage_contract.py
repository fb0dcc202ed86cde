"""What every storage guarantees, call by call: memory, directory and object store alike."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stratamq.errors import InvalidRequestError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Folders,
    List,
    Load,
    Read,
    ShortObjectError,
    Size,
    StorageRefusedError,
    Swap,
    SwapLostError,
    WriteAt,
)

PATH = "212d6b50_DefaultCluster/broker-a/%RETRY%billing/0/stratamq-manifest.json"


def listed(storage, folder="", after="", limit=3):
    """(path, size) of all, by pages so small that few objects are several."""
    found = []
    while True:
        page = storage.perform(List(folder, after, limit))
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return [(entry.path, entry.size) for entry in found]
        after = page[-1].path


def content(storage, path=PATH):
    return storage.perform(Load(path))[0]


def version_now(storage, path=PATH):
    return storage.perform(Load(path))[1]


def test_a_read_returns_exactly_its_range(storage):
    storage.perform(Create(PATH, bytes(range(200))))
    assert storage.perform(Read(PATH, 0, 200)) == bytes(range(200))
    assert storage.perform(Read(PATH, 17, 5)) == bytes(range(17, 22))
    assert storage.perform(Read(PATH, 199, 1)) == b"\xc7"


@pytest.mark.parametrize(("start", "length"), [(0, 11), (9, 2), (10, 1), (11, 1), (500, 20)])
def test_a_read_beyond_the_end_is_an_error_and_never_padded(storage, start, length):
    storage.perform(Create(PATH, bytes(10)))
    with pytest.raises(ShortObjectError, match="10 bytes"):
        storage.perform(Read(PATH, start, length))


def test_a_range_of_no_bytes_is_read_where_the_object_reaches_it(storage):
    storage.perform(Create(PATH, bytes(10)))
    assert storage.perform(Read(PATH, 10, 0)) == b""
    with pytest.raises(ShortObjectError):
        storage.perform(Read(PATH, 11, 0))


def test_what_is_absent_is_an_error_of_its_own(storage):
    with pytest.raises(AbsentError):
        storage.perform(Read(PATH, 0, 1))
    with pytest.raises(AbsentError):
        storage.perform(Read(PATH, 0, 0))
    with pytest.raises(AbsentError):
        storage.perform(Load(PATH))
    assert storage.perform(Size(PATH)) is None


def test_the_size_is_the_true_one(storage):
    storage.perform(Create(PATH, bytes(1234)))
    assert storage.perform(Size(PATH)) == 1234


def test_an_empty_object_is_an_object(storage):
    version = storage.perform(Create(PATH, b""))
    assert storage.perform(Size(PATH)) == 0
    assert content(storage) == b""
    assert version_now(storage) == version


def test_a_create_of_what_is_there_changes_nothing(storage):
    version = storage.perform(Create(PATH, b"first"))
    with pytest.raises(AlreadyThereError):
        storage.perform(Create(PATH, b"second"))
    assert content(storage) == b"first"
    assert version_now(storage) == version


def test_a_create_that_lost_its_answer_is_recognised_by_its_content(storage):
    storage.perform(Create(PATH, b"of this attempt"))  # the answer did not arrive
    with pytest.raises(AlreadyThereError):
        storage.perform(Create(PATH, b"of this attempt"))
    assert content(storage) == b"of this attempt"


def test_a_swap_replaces_the_version_that_it_names(storage):
    first = storage.perform(Swap(PATH, b"one", None))
    second = storage.perform(Swap(PATH, b"two", first))
    assert second != first
    assert content(storage) == b"two"
    assert version_now(storage) == second


def test_the_version_of_a_load_can_be_swapped(storage):
    storage.perform(Create(PATH, b"one"))
    storage.perform(Swap(PATH, b"two", version_now(storage)))
    assert content(storage) == b"two"


def test_of_two_swaps_at_one_version_the_second_is_lost(storage):
    version = storage.perform(Swap(PATH, b"one", None))
    storage.perform(Swap(PATH, b"two", version))
    with pytest.raises(SwapLostError):
        storage.perform(Swap(PATH, b"three", version))
    with pytest.raises(SwapLostError):
        storage.perform(Swap(PATH, b"three", None))
    assert content(storage) == b"two"


def test_a_swap_of_what_was_deleted_is_lost(storage):
    version = storage.perform(Swap(PATH, b"one", None))
    storage.perform(Delete(PATH))
    with pytest.raises(SwapLostError):
        storage.perform(Swap(PATH, b"two", version))
    assert storage.perform(Size(PATH)) is None


def at_once(work, count):
    """What `work(number)` returned or raised, all started at one moment."""
    ready = threading.Barrier(count)

    def one(number):
        ready.wait()
        try:
            return work(number)
        except (SwapLostError, AlreadyThereError) as lost:
            return lost

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_of_concurrent_swaps_at_one_version_exactly_one_wins(storage):
    version = storage.perform(Swap(PATH, b"start", None))
    for round_number in range(3):
        contents = [b"%d of round %d" % (number, round_number) for number in range(6)]
        expected = version

        def swap(number, contents=contents, expected=expected):
            return storage.perform(Swap(PATH, contents[number], expected))

        outcomes = at_once(swap, len(contents))
        won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
        assert len(won) == 1
        assert content(storage) == contents[won[0]]
        version = outcomes[won[0]]


def test_of_concurrent_creates_exactly_one_wins(storage):
    contents = [b"content %d" % number for number in range(6)]
    outcomes = at_once(lambda n: storage.perform(Create(PATH, contents[n])), len(contents))
    won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, Exception)]
    assert len(won) == 1
    assert content(storage) == contents[won[0]]


def test_every_reader_beside_swaps_sees_a_whole_content(storage):
    contents = [bytes([number]) * 100_000 for number in range(8)]
    version = storage.perform(Create(PATH, contents[0]))
    seen = []

    def work(number):
        nonlocal version
        if number == 0:
            for content in contents[1:]:
                version = storage.perform(Swap(PATH, content, version))
        else:
            seen.extend(storage.perform(Load(PATH)) for _ in range(10))

    at_once(work, 3)
    assert all(data in contents for data, _ in seen)
    assert len(set(seen)) == len({data for data, _ in seen}) == len({tag for _, tag in seen})


def test_a_delete_is_good_for_what_is_absent_too(storage):
    storage.perform(Delete(PATH))
    storage.perform(Create(PATH, b"x"))
    storage.perform(Delete(PATH))
    storage.perform(Delete(PATH))
    assert storage.perform(Size(PATH)) is None
    storage.perform(Create(PATH, b"again"))


def test_what_was_written_is_there_when_the_storage_is_opened_again(make_storage):
    version = make_storage().perform(Create(PATH, b"kept"))
    again = make_storage()
    assert content(again) == b"kept"
    assert version_now(again) == version


def test_a_listing_has_every_object_below_its_folder_sorted_by_path(storage):
    paths = ["a/x/1", "a/x-y", "a/x/2", "a/xy", "a/x+/3", "b/1", "a/%41/0", "a/A/0", "ab/1"]
    for number, path in enumerate(paths):
        storage.perform(Create(path, bytes(number)))
    everything = sorted((path, number) for number, path in enumerate(paths))
    assert listed(storage) == everything
    assert listed(storage, "a") == [pair for pair in everything if pair[0].startswith("a/")]
    assert listed(storage, "a/x") == [("a/x/1", 0), ("a/x/2", 2)]
    assert listed(storage, "nothing/here") == []


def test_a_listing_continues_behind_any_path(storage):
    paths = sorted(f"q/{number}/{name}" for number in range(4) for name in ("a", "b"))
    for path in paths:
        storage.perform(Create(path, b""))
    for after in [*paths, "q/0", "q/1/aa", "q/2/", "q/zzz", "a", "z"]:
        expected = [path for path in paths if path > after]
        assert [path for path, _ in listed(storage, "q", after)] == expected


@pytest.mark.parametrize(
    "name",
    ["%RETRY%billing", "%DLQ%a%2Fb", "%41", "Größe", "日本", "a b", "a+b=c", "#?&;", "~", "'\"`\\"],
)
def test_a_name_comes_back_as_it_was(storage, name):
    path = f"cluster/{name}/0/{name}"
    try:
        storage.perform(Create(path, b"content"))
    except StorageRefusedError:
        # Azure makes a slash of a backslash: no object gets such a name.
        assert "\\" in name
        assert listed(storage) == []
        return
    assert storage.perform(Read(path, 0, 7)) == b"content"
    assert storage.perform(Size(path)) == 7
    assert listed(storage) == [(path, 7)]
    assert listed(storage, f"cluster/{name}") == [(path, 7)]
    assert storage.perform(Folders("cluster")) == [name]
    storage.perform(Swap(path, b"other", version_now(storage, path)))
    storage.perform(Delete(path))
    assert listed(storage) == []


def test_folders_are_the_names_directly_below(storage):
    for path in ["t/b/0/x", "t/a/0/x", "t/a/1/x", "t/file", "u/x", "t/a-/x", "t/a0/x"]:
        storage.perform(Create(path, b""))
    assert storage.perform(Folders("")) == ["t", "u"]
    assert storage.perform(Folders("t")) == ["a", "a-", "a0", "b"]
    assert storage.perform(Folders("t/a")) == ["0", "1"]
    assert storage.perform(Folders("t/a/0")) == []
    assert storage.perform(Folders("absent")) == []


def test_where_there_are_no_positions_a_write_at_one_is_refused(storage):
    if storage.positions:
        pytest.skip("this storage has positions")
    with pytest.raises(StorageRefusedError):
        storage.perform(WriteAt(PATH, 0, b"x"))
    assert storage.perform(Size(PATH)) is None


class TestPositions:
    """Of storages that have them."""

    @pytest.fixture(autouse=True)
    def has_positions(self, storage):
        if not storage.positions:
            pytest.skip("this storage has no positions")

    def test_a_write_makes_the_file_and_appends_to_it(self, storage):
        storage.perform(WriteAt(PATH, 0, b"first"))
        storage.perform(WriteAt(PATH, 5, b"second"))
        assert storage.perform(Read(PATH, 0, 11)) == b"firstsecond"
        assert storage.perform(Size(PATH)) == 11

    def test_the_same_write_again_changes_nothing(self, storage):
        for _ in range(2):
            storage.perform(WriteAt(PATH, 0, b"first"))
        assert content(storage) == b"first"

    def test_a_write_never_shortens_the_file(self, storage):
        storage.perform(WriteAt(PATH, 0, b"0123456789"))
        storage.perform(WriteAt(PATH, 2, b"ab"))
        storage.perform(WriteAt(PATH, 0, b""))
        assert content(storage) == b"01ab456789"

    @pytest.mark.parametrize("size", [0, 4])
    def test_a_write_beyond_the_end_is_refused_and_leaves_no_hole(self, storage, size):
        if size:
            storage.perform(WriteAt(PATH, 0, bytes(size)))
        with pytest.raises(StorageRefusedError):
            storage.perform(WriteAt(PATH, size + 1, b"x"))
        assert (storage.perform(Size(PATH)) or 0) == size

    def test_what_was_written_at_positions_has_a_version_as_well(self, storage):
        storage.perform(WriteAt(PATH, 0, b"one"))
        version = version_now(storage)
        storage.perform(WriteAt(PATH, 3, b"two"))
        with pytest.raises(SwapLostError):
            storage.perform(Swap(PATH, b"x", version))


@pytest.mark.parametrize(
    "path",
    ["", "/", "a//b", "/a", "a/", "a/../b", "..", ".", "a/./b", "a\0b", "a\nb", "\x7f", "\ud800",
     "x" * 256, "/".join(["x" * 250] * 5), "stratamq/tmp/x", "stratamq"],
)  # fmt: skip
def test_a_path_that_is_no_list_of_names_is_refused_before_any_storage_sees_it(path):
    for call in (
        lambda: Read(path, 0, 1),
        lambda: Load(path),
        lambda: Size(path),
        lambda: Create(path, b""),
        lambda: Swap(path, b"", None),
        lambda: WriteAt(path, 0, b""),
        lambda: Delete(path),
    ):
        with pytest.raises(InvalidRequestError):
            call()
    if path:
        for folder_call in (lambda: List(path), lambda: Folders(path)):
            with pytest.raises(InvalidRequestError):
                folder_call()


@pytest.mark.parametrize(
    "call", [lambda: Read("a", -1, 1), lambda: Read("a", 0, -1), lambda: WriteAt("a", -1, b"")]
)
def test_a_range_that_is_none_is_refused(call):
    with pytest.raises(InvalidRequestError):
        call()
