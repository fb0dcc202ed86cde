"""What each row of `docs/compatibility.md` allows to differ, as narrowly as possible."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stratamq.formats.javahash import tags_code
from tests.compatibility.judge import Explanation, Line, Pair

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True, slots=True)
class Opened:
    """What the explanations may look at beside the two lines."""

    opening: str
    ours: list[Line]
    theirs: list[Line]


def delay_units(opened: Opened) -> Explanation:
    """A delayed message's unit has the plain tag hash there and the deliver time here; `filtered`
    lines, whose questions are these codes, follow."""
    deliver = {
        line["phyOffset"]: line["tagsCode"]
        for line in opened.theirs
        if line["kind"] == "frame" and line.get("topic") == DELAY_TOPIC
    }
    messages = [
        line for line in opened.ours if line["kind"] == "message" and line["topic"] == DELAY_TOPIC
    ]

    def explains(pair: Pair) -> bool:
        if pair.kind == "message" and pair.theirs and pair.ours:
            tag = pair.theirs["properties"].get("TAGS")
            return (
                pair.fields() == {"tagsCode"}
                and pair.theirs["tagsCode"] == (tags_code(tag) if tag else 0)
                and pair.ours["tagsCode"] == deliver[pair.ours["phyOffset"]]
            )
        if pair.kind == "filtered" and pair.key[0] == DELAY_TOPIC:
            if pair.ours is None:
                return True
            _, queue_id, code = pair.key
            return pair.ours["phyOffsets"] == [
                line["phyOffset"]
                for line in messages
                if line["queueId"] == queue_id and line["tagsCode"] == code
            ]
        return False

    return explains


def tag_keys(opened: Opened) -> Explanation:
    """Index files that had to be built anew hold no items of tags: fewer items, other headers."""
    files = [line for line in opened.theirs if line["kind"] == "index"]
    first_rebuilt = 0 if opened.opening.endswith("+no-index") else len(files) - 1

    def explains(pair: Pair) -> bool:
        if pair.kind != "index" or pair.key[0] < first_rebuilt or pair.theirs is None:
            return False
        return pair.ours is None or "length" not in pair.fields()

    return explains


def emptied_queues(opened: Opened) -> Explanation:
    """Of a queue whose messages are all deleted the minimum, and what pulls answer by it."""
    ours = {
        (line["topic"], line["queueId"]): line for line in opened.ours if line["kind"] == "queue"
    }
    emptied = {
        (line["topic"], line["queueId"])
        for line in opened.theirs
        if line["kind"] == "queue"
        and (own := ours.get((line["topic"], line["queueId"]))) is not None
        and line["minOffset"] < own["minOffset"] == own["maxOffset"] == line["maxOffset"]
    }

    def explains(pair: Pair) -> bool:
        if pair.key[:2] not in emptied:
            return False
        if pair.kind == "queue":
            return pair.fields() == {"minOffset"}
        gone = pair.theirs is None or pair.theirs["count"] == 0
        return pair.kind == "pull" and gone and (pair.ours is None or pair.ours["count"] == 0)

    return explains


EXPLANATIONS: Mapping[str, Callable[[Opened], Explanation]] = {
    "delay-units-after-a-crash": delay_units,
    "tag-keys-not-written": tag_keys,
    "emptied-queues": emptied_queues,
}


def explanations(
    names: set[str], opening: str, ours: list[Line], theirs: list[Line]
) -> dict[str, Explanation]:
    """Those of the rows that an opening may show and that explain single lines."""
    opened = Opened(opening, ours, theirs)
    return {name: EXPLANATIONS[name](opened) for name in sorted(names & EXPLANATIONS.keys())}
