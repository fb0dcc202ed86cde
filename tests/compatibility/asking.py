"""Puts RocketMQ's own questions, the `time` and `query` lines of a dump, to a running broker."""

from tests.compatibility.judge import Line
from tests.compatibility.scans import Answer, Question
from tests.support.answers import offsets_by_time
from tests.support.brokers import Broker


def comparable(line: Line) -> Line:
    """What is compared of a line: all of it, save what loading removed."""
    if line["kind"] == "recovery":
        return {"kind": "recovery", "maxPhyOffset": line["maxPhyOffset"]}
    return line


def time_question(line: Line) -> tuple[str, int, int]:
    return line["topic"], line["queueId"], line["timestamp"]


def judge_times(broker: Broker, store: str, theirs: list[Line]) -> set[str]:
    lines = [line for line in theirs if line["kind"] == "time"]
    ours = offsets_by_time(broker, [time_question(line) for line in lines], 0)
    differ = [line for line, offset in zip(lines, ours, strict=True) if line["offset"] != offset]
    if store.startswith("4."):
        return {"offset-by-time-of-4.x"} if differ else set()
    assert differ == []
    return set()


def judge_queries(
    theirs: list[Line],
    questions: list[Question],
    answers: list[Answer],
    tag_places: set[int],
) -> tuple[set[str], list[str]]:
    """Whole-range queries as sets: the rows that they show, and what no row explains.

    `tag_places`: messages whose tags are indexed in the files that our answers came from.
    """
    rows: set[str] = set()
    wrong: list[str] = []
    lines = [line for line in theirs if line["kind"] == "query"]
    for line, question, (offsets, _) in zip(lines, questions, answers, strict=True):
        there, here = set(line["phyOffsets"]), set(offsets)
        if line["phyOffsets"] == sorted(offsets):
            continue
        if question.of_tag and there - here and not (there - here) & tag_places:
            rows.add("tag-keys-not-written")
        elif there == here:
            rows.add("each-message-once")
        elif question.of_all_times and there < here:
            rows.add("keys-lost-in-rocketmqs-crash")
        elif question.of_all_times:
            wrong.append(f"{question}: RocketMQ {sorted(there)}, here {sorted(here)}")
        else:
            rows.add("times-of-queries-exact")
    return rows, wrong


def without_index(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] != "index"]


def only_index(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["kind"] == "index"]


def without_length(lines: list[Line]) -> list[Line]:
    return [{name: line[name] for name in line if name != "length"} for line in lines]
