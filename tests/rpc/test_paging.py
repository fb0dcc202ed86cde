"""Tables in pages, and what changed in a table since the last query."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.formats.numbers import INT32_MAX
from stratamq.rpc.changes import Changes, ReadMark
from stratamq.rpc.paging import (
    EXAMINED_NAMES,
    PAGE_BYTES,
    NestedPlace,
    SortedEntries,
    nested_page,
    nested_place_of,
    nested_position_of,
    page,
    page_of_names,
    place_of,
    position_of,
)


def test_pages_follow_each_other_until_the_last():
    entries = list(range(7))
    assert page(entries, 0, most=3) == ([0, 1, 2], 3)
    assert page(entries, 3, most=3) == ([3, 4, 5], 6)
    assert page(entries, 6, most=3) == ([6], 0)
    assert page(entries, 0, 2, most=3) == ([0, 1], 2)
    assert page(entries, 0, 99, most=3) == ([0, 1, 2], 3)
    assert page(entries, 0, most=7) == (entries, 0)
    assert page(entries, 99) == ([], 0)


def test_a_page_ends_with_the_entry_that_makes_it_large():
    names = ["x" * (PAGE_BYTES // 2)] * 5
    assert page(names, 0, size=len) == (names[:2], 2)
    assert page(["x" * 2 * PAGE_BYTES] * 2, 0, size=len)[1] == 1


def test_pages_of_names_with_a_text_in_them_follow_each_other_until_the_last():
    names = [f"Topic-{number}" for number in range(2 * EXAMINED_NAMES + 10)]
    wanted = [one for one in names if "c-99" in one]
    found, place, pages = [], 0, 0
    while pages == 0 or place:
        taken, place = page_of_names(names, place, 7, "C-99", most=100)
        assert len(taken) <= 7
        found += taken
        pages += 1
    assert found == wanted
    assert page_of_names(names, 0, 0, "nowhere", most=100) == ([], EXAMINED_NAMES)
    assert page_of_names(names, 0, 3, "", most=100) == (names[:3], 3)


def test_a_position_is_good_for_one_start():
    assert position_of(0, 7) == 0
    assert place_of(0, 7) == 0
    assert place_of(position_of(5, 7), 7) == 5
    with pytest.raises(UnavailableError):
        place_of(position_of(5, 7), 8)
    with pytest.raises(InvalidRequestError):
        place_of(-1, 7)


Nested = list[set[int]]
entries_of_keys = st.lists(st.sets(st.integers(0, 6), max_size=5), max_size=6)


@given(
    entries_of_keys,
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6), st.booleans()), max_size=20),
    st.integers(1, 4),
)
def test_nested_pages_have_what_is_there_throughout_once_whatever_comes_and_goes(
    table: Nested, changes, most
):
    cache: SortedEntries[int] = SortedEntries()
    version, place, seen = 0, NestedPlace(), []
    throughout = {(key, entry) for key, entries in enumerate(table) for entry in entries}

    def entries_of(key):
        return cache.of(key, version, lambda: table[key])

    while place is not None:
        found, place = nested_page(range(len(table)), entries_of, place, most=most)
        assert len(found) <= most
        assert all(entry in table[key] for key, entry in found)
        seen += found
        for number, entry, comes in changes[:3]:
            version += 1
            if number >= len(table):
                table.append({entry})
            elif comes:
                table[number].add(entry)
            else:
                table[number].discard(entry)
                throughout.discard((number, entry))
        changes = changes[3:]
    assert seen == sorted(set(seen))
    assert throughout <= set(seen)


def test_a_nested_page_looks_at_as_many_keys_as_it_may_have_entries():
    looked = []

    def none(key):
        looked.append(key)
        return []

    assert nested_page(range(10), none, NestedPlace(), 1, most=4) == ([], NestedPlace(4))
    assert looked == [0, 1, 2, 3]
    assert nested_page(range(10), none, NestedPlace(8), most=4) == ([], None)
    with pytest.raises(InvalidRequestError):
        nested_page(range(10), none, NestedPlace(), -1)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, INT32_MAX))
def test_a_nested_position_is_one_number_good_for_one_start(key, entry):
    place = NestedPlace(key, entry)
    position = nested_position_of(place)
    assert nested_place_of(position, 7, 7) == place
    assert position < 1 << 63
    if position:
        with pytest.raises(UnavailableError):
            nested_place_of(position, 0, 7)
    with pytest.raises(InvalidRequestError):
        nested_place_of(-1, 7, 7)


def test_the_last_nested_page_has_no_position():
    assert nested_position_of(None) == 0
    assert nested_place_of(0, 0, 7) == NestedPlace()


def all_pages(changes: Changes[int], mark: ReadMark, most: int) -> tuple[list[int], ReadMark]:
    seen, mark = changes.since(mark, most)
    while mark.position:
        more, mark = changes.since(mark, most)
        seen += more
    return seen, mark


@given(st.lists(st.lists(st.integers(0, 20), max_size=30), max_size=6), st.integers(1, 5))
def test_a_reader_gets_what_changed_since_its_mark_and_nothing_else(rounds, most):
    changes: Changes[int] = Changes(3)
    mark = ReadMark()
    for changed in rounds:
        for key in changed:
            changes.note(key)
        seen, mark = all_pages(changes, mark, most)
        assert sorted(seen) == sorted(set(changed))


def test_what_changes_during_a_pass_is_in_it_or_in_the_next():
    changes: Changes[int] = Changes(3)
    for key in range(4):
        changes.note(key)
    first, mark = changes.since(ReadMark(), 2)
    changes.note(0)
    changes.note(9)
    rest, mark = all_pages(changes, mark, 2)
    assert first + rest == [0, 1, 2, 3, 9]
    assert all_pages(changes, mark, 2)[0] == [0, 9]


def test_a_mark_of_another_start_or_of_the_future_gets_everything():
    changes: Changes[int] = Changes(3)
    changes.note(1)
    for mark in (ReadMark(2, 1), ReadMark(3, 5), ReadMark(3, 0, 5, 1)):
        assert changes.since(mark, 9)[0] == [1]
    with pytest.raises(InvalidRequestError):
        changes.since(ReadMark(3, -1), 9)
