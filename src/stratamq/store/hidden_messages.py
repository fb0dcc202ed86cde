"""What consumers of a store are not given although its log has it: purged messages, deleted topics.

Read from the files (`config/topics.json` and its changes), for those who read a log without its
service. Nothing is changed.
"""

from dataclasses import dataclass, field

from stratamq.files.journal import Journal
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import CHANGES_DIRECTORY, TOPICS_PATH
from stratamq.formats.topic_minimums import minimums_of

_TABLE = "topicConfigTable"


@dataclass(slots=True)
class HiddenMessages:
    """`floors`: by topic and queue id, the queue offset below which nothing is shown. A deleted
    topic has them at the ends that its queues had."""

    floors: dict[tuple[str, int], int] = field(default_factory=dict)

    def floor(self, key: tuple[str, int]) -> int:
        return self.floors.get(key, 0)


def hidden_messages(files: Files) -> HiddenMessages:
    """Read the hidden messages of the store in `files`. Malformed entries are ignored, as they are
    when the log starts."""
    file = MetadataFile(files, TOPICS_PATH)
    document = file.load(keep_aside=False) or {}
    entries: JsonObject = {}
    table = document.get(_TABLE)
    if isinstance(table, dict):
        entries.update(table)
    pieces: list[JsonObject] = []
    committed = Journal(files, f"{CHANGES_DIRECTORY}/{TOPICS_PATH}").load(pieces.append)
    follows = committed.get("follows", []) if isinstance(committed, dict) else []
    if file.content_digest in follows:
        for piece in pieces:
            entries.update(piece)
    found = HiddenMessages()
    for topic, entry in entries.items():
        for queue_id, offset in minimums_of(entry):
            found.floors[topic, queue_id] = offset
    return found
