"""Messages of a topic from the newest back: pages cover everything once, and say what they read."""

import json

import pytest
from stratamq_console import searching
from stratamq_console.matching import filter_of
from stratamq_console.searching import SearchBounds, parse_place, search, search_key

from stratamq.client import connect, connect_async
from stratamq.errors import InvalidRequestError, NotFoundError
from tests.support.waiting import until_dispatched, until_indexed

COUNT = 230


@pytest.fixture(scope="module")
def results(broker):
    """Messages 0, 1, 2, … of `numbers`, by number."""
    with connect(broker.root, retry_timeout_s=60) as client:
        with client.producer(batch_messages=7) as producer:
            deliveries = [
                producer.send(
                    "numbers",
                    json.dumps({"n": n}).encode(),
                    tag="even" if n % 2 == 0 else "odd",
                    keys=["all", f"n-{n}"],
                )
                for n in range(COUNT)
            ]
        found = [one.result() for one in deliveries]
        until_dispatched(client)
        until_indexed(client)
    return found


@pytest.fixture
async def client(broker):
    async with connect_async(broker.root, retry_timeout_s=60) as client:
        yield client


async def every_page(client, wanted, bounds=SearchBounds(), limit=20, find=search):  # noqa: B008
    pages, place = [], ""
    while True:
        asked = SearchBounds(
            bounds.queue_id, bounds.offset, bounds.begin_ms, bounds.end_ms, parse_place(place)
        )
        page = await find(client, "numbers", wanted, asked, limit)
        page = page[0] if isinstance(page, tuple) else page
        pages.append(page)
        if not page.place:
            return pages
        place = page.place


def offsets(pages) -> list[int]:
    return [one.physical_offset for page in pages for one in page.messages]


async def test_pages_have_every_message_once_the_newest_first(client, results):
    pages = await every_page(client, filter_of({}))
    assert offsets(pages) == sorted((one.physical_offset for one in results), reverse=True)
    assert all(len(page.messages) == 20 for page in pages[:-1])
    assert sum(page.looked_at for page in pages) == COUNT and pages[-1].left == 0


@pytest.mark.parametrize("fields", [{"tag": "odd"}, {"json": "n=7"}, {"text": '"n": 22'}])
async def test_a_filter_passes_over_the_others_and_counts_them(client, results, fields):
    pages = await every_page(client, filter_of(fields))
    expected = {
        "odd": [n for n in range(COUNT) if n % 2],
        "n=7": [7],
        '"n": 22': [n for n in range(COUNT) if str(n).startswith("22")],
    }[next(iter(fields.values()))]
    assert offsets(pages) == [results[n].physical_offset for n in reversed(expected)]
    assert sum(page.looked_at for page in pages) == COUNT


async def test_a_page_that_has_read_enough_says_so_and_goes_on(client, results, monkeypatch):
    monkeypatch.setattr(searching, "MAX_LOOKED_AT", 60)
    pages = await every_page(client, filter_of({"json": "n=0"}))
    assert len(pages) > 1 and pages[0].stopped_early and pages[0].left > 0
    assert offsets(pages) == [results[0].physical_offset]
    # A queue that was not read as far as the others may have the next newest message.
    monkeypatch.setattr(searching, "MAX_LOOKED_AT", 30)
    pages = await every_page(client, filter_of({"text": '"n"'}), limit=25)
    assert any(page.stopped_early for page in pages)
    assert offsets(pages) == sorted((one.physical_offset for one in results), reverse=True)


async def test_a_queue_and_an_offset_bound_what_is_read(client, results):
    queue = [one for one in results if one.queue_id == 1]
    pages = await every_page(client, filter_of({}), SearchBounds(1, 9))
    assert offsets(pages) == [one.physical_offset for one in reversed(queue[:10])]


async def test_times_bound_what_is_read(client, results):
    begin, end = results[50].store_timestamp_ms, results[150].store_timestamp_ms
    pages = await every_page(client, filter_of({}), SearchBounds(begin_ms=begin, end_ms=end))
    within = [one for one in results if begin <= one.store_timestamp_ms <= end]
    assert offsets(pages) == sorted((one.physical_offset for one in within), reverse=True)


async def test_a_key_is_found_by_the_index_in_pages(client, results):
    pages = await every_page(client, filter_of({"key": "all"}), find=search_key)
    assert offsets(pages) == sorted((one.physical_offset for one in results), reverse=True)
    (page,) = await every_page(client, filter_of({"key": "n-5"}), find=search_key)
    assert [one.physical_offset for one in page.messages] == [results[5].physical_offset]


async def test_bodies_of_megabytes_do_not_stop_a_search(client, results):
    for _ in range(3):
        await client.send("large", bytes(3 << 20), queue_id=0)
    page = await search(client, "large", filter_of({"text": "needle"}), SearchBounds())
    assert page.looked_at == 3 and page.messages == ()
    page = await search(client, "large", filter_of({}), SearchBounds())
    assert [one.queue_offset for one in page.messages] == [2, 1, 0]
    assert all(len(one.preview) < 1_000 for one in page.messages)


async def test_large_bodies_behind_small_ones_do_not_make_a_page_read_far_more(
    client, results, monkeypatch
):
    monkeypatch.setattr(searching, "MAX_READ_BYTES", 2 << 20)
    monkeypatch.setattr(searching, "TOO_LARGE_CHUNK_BYTES", 256 << 10, raising=False)
    for number in range(60):
        await client.send("behind", bytes(128 << 10 if number < 56 else 1), queue_id=0)
    read = 0
    pull = type(client).pull

    async def counting(self, *given, **named):
        nonlocal read
        pulled = await pull(self, *given, **named)
        read += sum(one.size for one in pulled.messages)
        return pulled

    monkeypatch.setattr(type(client), "pull", counting)
    page = await search(client, "behind", filter_of({"text": "needle"}), SearchBounds())
    assert page.stopped_early and read < 4 << 20, "7 MiB are there"
    pages = [page]
    while pages[-1].place:
        bounds = SearchBounds(place=parse_place(pages[-1].place))
        pages.append(await search(client, "behind", filter_of({"text": "needle"}), bounds))
    assert sum(one.looked_at for one in pages) == 60


async def test_no_group_reads_and_no_offset_moves(client, results):
    await client.commit_offsets("billing", {("numbers", 0): 3})
    before = await client.groups()
    await every_page(client, filter_of({"text": "1"}))
    assert await client.groups() == before
    assert await client.group_members("billing") == []


async def test_an_unknown_topic_is_not_found(client):
    with pytest.raises(NotFoundError):
        await search(client, "unknown", filter_of({}), SearchBounds())


@pytest.mark.parametrize("text", ["x", "1", "1.2-", "1.2-3", "-1.2", "1.2.3", "1" * 30 + ".1"])
def test_a_damaged_place_is_refused(text):
    with pytest.raises(InvalidRequestError):
        parse_place(text)
