"""What a broker's tier has beside its queues: who writes it, how far its log is in it, and which
queues it has. JSON, one object each; the queues in pages.
"""

import json
import re
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import FORMAT, Epoch

WRITER_NAME = "stratamq-writer.json"
PROGRESS_NAME = "stratamq-progress.json"
CONSUMER_OFFSETS_NAME = "stratamq-consumer-offsets.json"
_QUEUES_NAME = re.compile(r"stratamq-queues-\d{4,}\.json")

QueueName = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class TierSelection:
    """The settings by which a writer chose what goes into the tier."""

    topics: tuple[str, ...] = ()
    except_topics: tuple[str, ...] = ()
    start: str = ""


@dataclass(frozen=True, slots=True)
class TierProgress:
    """How far a log's messages are in the tier; offsets are the log's, in bytes.

    `generation`: of the log that this was read from; `position`: every message below it that
    belongs in the tier is there; `reach`: none at or above it is. `revision` counts the changes.
    `history`: that generation and some before it, each with the log offset at which it began.
    `put_back`: the tier was found to be older than it had been; `forced`: the log had deleted what
    was not in it; until what is missing is recorded. `chosen`: by what was chosen since then; ():
    not known.
    """

    generation: int
    position: int
    reach: int
    epoch: Epoch
    revision: int = 0
    history: tuple[tuple[int, int], ...] = ()
    put_back: bool = False
    forced: bool = False
    chosen: tuple[TierSelection, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Some of the queues of which the tier has had messages. Each is named once, in the order in
    which they came, and stays."""

    queues: tuple[QueueName, ...]
    epoch: Epoch
    revision: int = 0


def queues_name(page: int) -> str:
    return f"stratamq-queues-{page:04d}.json"


def is_own_name(name: str) -> bool:
    """Whether an object of ours beside the topics has that name, or may have it."""
    own = (WRITER_NAME, PROGRESS_NAME, CONSUMER_OFFSETS_NAME)
    return name in own or _QUEUES_NAME.fullmatch(name) is not None


def encode_writer(epoch: Epoch) -> bytes:
    """The object by which a writer claims a broker's tier."""
    return json.dumps({"format": FORMAT, "epoch": list(epoch)}).encode()


def decode_writer(raw: bytes) -> Epoch:
    """CorruptRecordError (reason `json`)."""
    try:
        generation, start = json.loads(raw)["epoch"]
        return int(generation), int(start)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no claim of a writer: {error}", 0, "json") from error


def encode_progress(progress: TierProgress) -> bytes:
    """The object that says how far a broker's log is in the tier."""
    document = {
        "format": FORMAT,
        "revision": progress.revision,
        "epoch": list(progress.epoch),
        "generation": progress.generation,
        "position": progress.position,
        "reach": progress.reach,
        "history": [list(one) for one in progress.history],
    }
    document |= {"putBack": progress.put_back, "forced": progress.forced}
    document["chosen"] = [[one.topics, one.except_topics, one.start] for one in progress.chosen]
    return json.dumps(document, separators=(",", ":")).encode()


def decode_progress(raw: bytes) -> TierProgress:
    """CorruptRecordError (reason `json`)."""
    try:
        document = json.loads(raw)
        generation, start = document["epoch"]
        return TierProgress(
            int(document["generation"]),
            int(document["position"]),
            int(document["reach"]),
            (int(generation), int(start)),
            int(document["revision"]),
            tuple((int(number), int(begun)) for number, begun in document.get("history", ())),
            bool(document.get("putBack", False)),
            bool(document.get("forced", False)),
            tuple(
                TierSelection(tuple(one[0]), tuple(one[1]), one[2])
                for one in document.get("chosen", ())
            ),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no progress of a tier: {error}", 0, "json") from error


def encode_queue_page(page: QueuePage) -> bytes:
    document = {
        "format": FORMAT,
        "revision": page.revision,
        "epoch": list(page.epoch),
        "queues": [list(one) for one in page.queues],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_queue_page(raw: bytes) -> QueuePage:
    """CorruptRecordError (reason `json`)."""
    try:
        document = json.loads(raw)
        generation, start = document["epoch"]
        queues = tuple((str(topic), int(number)) for topic, number in document["queues"])
        return QueuePage(queues, (int(generation), int(start)), int(document["revision"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no list of a tier's queues: {error}", 0, "json") from error
