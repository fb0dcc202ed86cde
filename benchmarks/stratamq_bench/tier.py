"""The tier beside its storage: uploading, reading what the log has no more, and what that asks for.

A log is filled first. The tier service uploads it, beside a copy of the same bytes through the same
storage; its segments are deleted, and a consumer reads the topic, beside reading the same objects,
and beside what it read from the log before.
Then single pulls and time searches of a service without a cache, and a thousand queues, are counted
in requests.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import stratamq
from stratamq.client import Client, Message, Queue, Topic
from stratamq.client.values import TierState
from stratamq.errors import StrataError
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.tier.driver.calls import (
    Create,
    List,
    Read,
    StorageCall,
    Together,
    WriteAt,
    ask,
)
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.running import Runner
from stratamq.tier.driver.storage import Storage, run
from stratamq_bench.broker import Broker, until
from stratamq_bench.load import Mismatch, Places
from stratamq_bench.plan import MIB
from stratamq_bench.report import Bar, Case, Floor, at_least
from stratamq_bench.streaming import FilledStore, fill

SEGMENT_BYTES = 16 * MIB
PIECE_BYTES = 4 * MIB
UPLOADS_AT_ONCE = 8
UPLOAD_MEASURED = 0.85
"""The measured share of the log: after it the last batches of the queues wait until they are
due."""
DEADLINE_S = 600.0
LOOK_S = 0.1
"""Asking more often would be measured, too."""
PULLED = 32
CALLS_OF_THE_ORIGINAL = 2
"""The calls for each commit of a queue: its records, its units."""


@dataclass(frozen=True, slots=True)
class Options:
    """`target`: where the tier is, of which parts of the name are added; "": a directory."""

    target: str
    endpoint: str
    rounds: int
    body: int
    messages: int
    queues: int
    queue_messages: int = 300

    def place(self, directory: Path, name: str) -> str:
        return f"{self.target}/{name}" if self.target else str(directory / name)

    def settings(self, target: str) -> dict[str, object]:
        given: dict[str, object] = {
            "tier.target": target,
            "tier.scan_interval_ms": 100,
            "tier.batch_wait_ms": 2_000,
            "tier.uploads_at_once": UPLOADS_AT_ONCE,
            "tier.consumer_offsets_interval_ms": 86_400_000,
            "commitlog.segment_bytes": SEGMENT_BYTES,
            "commitlog.followers": "dispatcher",
            "commitlog.release_timeout_ms": 0,
        }
        if self.endpoint:
            given |= {"tier.endpoint": self.endpoint, "tier.allow_http": "true"}
        return given


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything local is below `directory`. Raises Mismatch, StrataError."""
    store = fill(directory, options.messages, options.body, SEGMENT_BYTES)
    uploads, copies, reads, scans, fetches = [], [], [], [], []
    for number in range(options.rounds):
        target = options.place(directory, f"round-{number}")
        with open_storage(options.place(directory, f"copy-{number}")) as storage:
            copies.append(_copy(store, storage))
        if number == options.rounds - 1:
            break
        uploads.append(_upload(directory, options, target, store))
    with _broker(directory, options, target) as broker, broker.client() as client:
        _until_dispatched(client, store)
        local = [_consume(client, store) for _ in range(options.rounds)]
        uploads.append(_start_and_watch(broker, client))
        _delete_log(client)
        for _ in range(options.rounds):
            reads.append(_consume(client, store))
            scans.append(_scan(target, store))
            with open_storage(target) as storage:
                fetches.append(_fetch(storage))
        pulls, searches = _count_requests(broker, client)
    return [
        _rate_case("upload of a whole log", "copy it", store, uploads, copies),
        _rate_case("consume all of it, cold", "read the objects", store, reads, fetches),
        _rate_case("consume all of it, beside the log", "from the log", store, reads, local, ()),
        _rate_case("scan all of it, cold", "read the objects", store, scans, fetches),
        _requests_case(f"a cold pull of {PULLED} messages", pulls, 2),
        _requests_case("a search by time", searches, 3),
        _many_queues(directory, options),
    ]


def _broker(directory: Path, options: Options, target: str) -> Broker:
    return Broker(directory, ["commitlog", "dispatcher"], options.settings(target), "store")


def _upload(directory: Path, options: Options, target: str, store: FilledStore) -> float:
    with _broker(directory, options, target) as broker, broker.client() as client:
        _until_dispatched(client, store)
        rate = _start_and_watch(broker, client)
        broker.kill("tier")
    return rate


def _until_dispatched(client: Client, store: FilledStore) -> None:
    """The queues of a log that was filled offline are built at its first start."""

    def built() -> bool:
        return sum(queue.max_offset for queue in _queues(client)) >= store.messages

    until(built, "the queues are not built", DEADLINE_S, LOOK_S)


def _queues(client: Client) -> list[Queue]:
    return [queue for topic in Places().topic_names for queue in client.queues(topic)]


def _start_and_watch(broker: Broker, client: Client) -> float:
    """Bytes of the log a second, from the first commit on."""
    end = client.log_state().appended_offset
    broker.start("tier")
    first: tuple[int, float] | None = None
    last = 0, 0.0
    deadline = time.monotonic() + DEADLINE_S
    while True:
        state, now = client.admin.tier_state(), time.monotonic()
        if state.committed_bytes and first is None:
            first = state.committed_bytes, now
        if not last[1] and state.committed_bytes >= UPLOAD_MEASURED * end:
            last = state.committed_bytes, now
        if state.committed_offset >= end:
            break
        if now > deadline:
            raise StrataError(f"the upload is not over after {DEADLINE_S} s: {state.last_failure}")
        time.sleep(LOOK_S)
    if first is None or last[1] <= first[1]:
        raise StrataError("the log is too small to measure its upload")
    return (last[0] - first[0]) / (last[1] - first[1])


def _copy(store: FilledStore, storage: Storage) -> float:
    """The log's bytes into the storage, as durable and as many at once: bytes a second."""
    runner = Runner(storage, UPLOADS_AT_ONCE)

    def calls() -> list[StorageCall[object]]:
        made: list[StorageCall[object]] = []
        for path in sorted((store.root / COMMIT_LOG).iterdir()):
            data = path.read_bytes()
            for at in range(0, len(data), PIECE_BYTES):
                name, piece = f"copy/{path.name}-{at:012d}", data[at : at + PIECE_BYTES]
                made.append(WriteAt(name, 0, piece) if storage.positions else Create(name, piece))
        return made

    prepared = calls()
    size = sum(len(call.data) for call in prepared)
    start = time.monotonic()
    runner.run(ask(Together(prepared)))
    seconds = time.monotonic() - start
    runner.close()
    return size / seconds


def _fetch(storage: Storage) -> float:
    """Every object with messages, one after the other: bytes a second."""
    after, size = "", 0
    start = time.monotonic()
    while page := run(ask(List("", after, 1_000)), storage):
        for one in page:
            if "/COMMIT_LOG/" not in one.path or one.path.endswith(".json"):
                continue
            for at in range(0, one.size, PIECE_BYTES):
                length = min(PIECE_BYTES, one.size - at)
                size += len(run(ask(Read(one.path, at, length)), storage))
        after = page[-1].path
    return size / (time.monotonic() - start)


def _delete_log(client: Client) -> None:
    end = client.log_state().appended_offset
    below = end - end % SEGMENT_BYTES
    until(
        lambda: client.admin.delete_below(below, max_segments=1 << 16)[0] >= below,
        f"the log below {below} is not gone",
        DEADLINE_S,
        LOOK_S,
    )


def _consume(client: Client, store: FilledStore) -> float:
    """Every message by a consumer of each topic: bytes of the log a second."""

    def read() -> Iterator[int]:
        for topic in Places().topic_names:
            with client.consume(topic) as messages:
                for _ in messages:
                    yield 1

    return _read_rate(read(), store)


def _scan(target: str, store: FilledStore) -> float:
    """Every message as a table's rows, verified: bytes of the log a second."""
    return _read_rate((batch.num_rows for batch in stratamq.scan(target)), store)


def _read_rate(counts: Iterable[int], store: FilledStore) -> float:
    start = time.monotonic()
    count = sum(counts)
    seconds = time.monotonic() - start
    if count != store.messages:
        raise Mismatch(f"{count} of {store.messages} messages were read")
    return store.log_bytes / seconds


def _count_requests(broker: Broker, client: Client) -> tuple[list[int], list[int]]:
    """Count the requests of the first pull and the first search in each queue after a start of the
    service."""
    queues = _queues(client)
    middle = {(one.topic, one.queue_id): one.max_offset // 3 for one in queues}
    chosen = random.Random(7)

    def pull(topic: str, queue_id: int) -> None:
        offset = chosen.randrange(middle[topic, queue_id])
        pulled = client.pull(topic, queue_id, offset, max_messages=PULLED)
        if len(pulled.messages) != PULLED:
            raise Mismatch(f"{len(pulled.messages)} messages instead of {PULLED}")
        times[topic, queue_id] = pulled.messages[0].store_timestamp_ms

    def search(topic: str, queue_id: int) -> None:
        client.offset_at_time(topic, queue_id, times[topic, queue_id])

    times: dict[tuple[str, int], int] = {}
    counted: list[list[int]] = []
    ask: Callable[[str, int], None]
    for ask in (pull, search):
        broker.kill("tier")
        # Without it what the kill took of the key index would be read again meanwhile.
        broker.start("tier", {"tier.index_enabled": "false"})
        _until_writing(client)
        found = []
        for one in queues:
            before = _reads(client.admin.tier_state())
            ask(one.topic, one.queue_id)
            found.append(_reads(client.admin.tier_state()) - before)
        counted.append(found)
    return counted[0], counted[1]


def _until_writing(client: Client) -> None:
    """Until it has read what the tier has, has held the end of the log against it, and asks the
    storage for nothing by itself."""
    before, end = -1, client.log_state().appended_offset

    def idle() -> bool:
        nonlocal before
        state, asked = client.admin.tier_state(), before
        before = state.request_count
        behind = state.waiting_messages or state.committed_offset < end
        at_work = state.not_writing_reason or state.queues_not_indexed or behind
        return not at_work and before == asked

    until(idle, "the tier service is not idle", DEADLINE_S, 1.0)


def _reads(state: TierState) -> int:
    return sum(one.count for one in state.requests if one.kind in ("read", "load"))


def _rate_case(
    what: str,
    floor: str,
    store: FilledStore,
    rates: list[float],
    floors: list[float],
    bars: tuple[Bar, ...] = at_least(0.5),
) -> Case:
    each = store.log_bytes / store.messages
    return Case(
        case=f"tier: {what}",
        messages_per_s=median(rates) / each,
        bytes_per_s=median(rates),
        floor=Floor(floor, median(floors) / each),
        ratio=median(rates) / median(floors),
        bars=bars,
        messages=store.messages * len(rates),
    )


def _requests_case(what: str, counts: list[int], limit: int) -> Case:
    return Case(
        case=f"tier: requests of {what}",
        bars=(Bar("most_requests", "at most", limit),),
        measured={"most_requests": max(counts), "mean_requests": sum(counts) / len(counts)},
        messages=len(counts),
    )


def _many_queues(directory: Path, options: Options) -> Case:
    """A wave of messages over many queues, each committed once or twice."""
    target = options.place(directory, "tier-of-many")
    settings = options.settings(target) | {"tier.index_enabled": "false"}
    count = options.queues * options.queue_messages
    topics = max(1, options.queues // 100)
    rooms = ["commitlog", "dispatcher"]
    with Broker(directory, rooms, settings, "many") as broker, broker.client() as client:
        body, each = bytes(options.body), -(-options.queues // topics)
        for number in range(topics):
            client.admin.put_topic(Topic(f"many-{number}", each, each))
        with client.producer() as producer:
            for number in range(count):
                queue = number % options.queues
                topic = f"many-{queue % topics}"
                producer.send_message(Message(topic, body, queue_id=queue // topics))
        broker.start("tier")
        end = client.log_state().appended_offset
        until(
            lambda: client.admin.tier_state().committed_offset >= end,
            "the messages are not uploaded",
            DEADLINE_S,
            LOOK_S,
        )
        state = client.admin.tier_state()
    writes = {one.kind: one.count for one in state.requests}
    commits = writes.get("swap", 0)
    per_million = state.request_count / count * 1e6
    original = CALLS_OF_THE_ORIGINAL * commits / count * 1e6
    return Case(
        case=f"tier: requests of {count} messages in {options.queues} queues",
        measured={
            "requests_per_million": per_million,
            "original_requests_per_million": original,
            "usd_per_million": state.cost_usd / count * 1e6,
        },
        messages=count,
        note="the original's: two calls for each commit of a queue, at the same batches",
    )
