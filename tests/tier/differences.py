"""Lines of `tier dump` against those of the real RocketMQ: every difference belongs to a row of
`docs/compatibility.md`, which is checked by the messages themselves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.compatibility.table import rows

Line = dict[str, Any]
Key = tuple[object, ...]

HEADING = "## Every difference in the tier"
NO_TIME = (1 << 63) - 1
KEY_FIELDS = {
    "store": (),
    "queue": ("topic", "queueId"),
    "message": ("topic", "queueId", "queueOffset"),
    "get": ("topic", "queueId", "offset", "max"),
    "offsetByTime": ("topic", "queueId", "time"),
    "indexSegment": ("base",),
    "indexFile": ("begin",),
    "query": ("topic", "key"),
}


def key_of(line: Line) -> Key:
    return (line["kind"], *(line[name] for name in KEY_FIELDS[line["kind"]]))


@dataclass(slots=True)
class Comparison:
    """`unexplained`: pairs of lines (theirs, ours) that no row allows. `seen`: rows that showed."""

    unexplained: list[tuple[Line | None, Line | None]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


class Tier:
    """What RocketMQ itself reports of the tier: what an explanation is held against."""

    def __init__(self, lines: list[Line]) -> None:
        self.messages: dict[Key, list[Line]] = {}
        self.ends: dict[Key, int] = {}
        for line in lines:
            if line["kind"] == "message":
                self.messages.setdefault((line["topic"], line["queueId"]), []).append(line)
            elif line["kind"] == "queue":
                self.ends[line["topic"], line["queueId"]] = line["commitOffset"]

    def of(self, line: Line) -> list[Line]:
        return self.messages[line["topic"], line["queueId"]]

    def offset_by_time(self, line: Line) -> tuple[int, int]:
        offsets = [(found["storeTime"], found["queueOffset"]) for found in self.of(line)]
        end = self.ends[line["topic"], line["queueId"]]
        lower = min((offset for time, offset in offsets if time >= line["time"]), default=end)
        same = [offset for time, offset in offsets if time == line["time"]]
        return lower, max(same, default=lower)

    def with_key(self, line: Line) -> list[list[int]]:
        found = [
            [message["queueId"], message["queueOffset"], message["physicalOffset"]]
            for (topic, _), messages in self.messages.items()
            if topic == line["topic"]
            for message in messages
            if line["key"] in _keys(message)
        ]
        return sorted(found, key=str)


def compare(theirs: list[Line], ours: list[Line], fixture: str) -> Comparison:
    tier = Tier(theirs)
    wanted, found = ({key_of(line): line for line in lines} for lines in (theirs, ours))
    assert len(wanted) == len(theirs), "two lines of one key"
    result = Comparison()
    for key in (*wanted, *(key for key in found if key not in wanted)):
        their, our = wanted.get(key), found.get(key)
        if their == our:
            continue
        row = next(
            (
                name
                for name, explains in EXPLANATIONS.items()
                if name in allowed(fixture) and explains(tier, their, our)
            ),
            None,
        )
        if row is None:
            result.unexplained.append((their, our))
        else:
            result.seen.add(row)
    return result


def allowed(fixture: str) -> set[str]:
    return {row.name for row in rows(HEADING) if fixture in row.openings()}


def _keys(message: Line) -> set[str]:
    properties = message["properties"]
    return {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")}


def _minimum(tier: Tier, their: Line | None, our: Line | None) -> bool:
    if their is None or our is None or their["kind"] != "get":
        return False
    first = tier.of(our)[0]["queueOffset"]
    return their["min"] == 0 and our == their | {"min": first}


def _last_time(tier: Tier, their: Line | None, our: Line | None) -> bool:
    if their is None or our is None or their["kind"] != "queue":
        return False
    last = tier.of(our)[-1]["storeTime"]
    return their["maxStoreTime"] == NO_TIME and our == their | {"maxStoreTime": last}


def _time_search(tier: Tier, their: Line | None, our: Line | None) -> bool:
    if their is None or our is None or their["kind"] != "offsetByTime":
        return False
    lower, upper = tier.offset_by_time(our)
    failed = str(their["lower"]).startswith("error")
    return failed and our == their | {"lower": lower, "upper": upper}


def _time_of_ipv6(tier: Tier, their: Line | None, our: Line | None) -> bool:
    if their is None or our is None or their["kind"] != "offsetByTime":
        return False
    lower, upper = tier.offset_by_time(our)
    from_ipv6 = any(":" in found["bornHost"].rpartition(":")[0] for found in tier.of(our))
    return from_ipv6 and our == their | {"lower": lower, "upper": upper}


def _expired_key(tier: Tier, their: Line | None, our: Line | None) -> bool:
    if their is None or our is None or their["kind"] != "query":
        return False
    failed = str(their["messages"]).startswith("error")
    return failed and our == their | {"messages": tier.with_key(our)}


def _index_as_it_is(tier: Tier, their: Line | None, our: Line | None) -> bool:
    line = their or our
    assert line is not None
    match line["kind"]:
        case "indexSegment":
            return our is None or our["size"] == 0
        case "indexFile":
            return (
                their is not None
                and our is not None
                and (their["state"], our["state"]) == ("UPLOAD", "UNSEALED")
                and their["items"] == our["items"]
            )
        case "query":
            if their is None or our is None:
                return False
            failed = their["files"].get(str(NO_TIME)) == "error TieredStoreException"
            files = {name: items for name, items in their["files"].items() if name != str(NO_TIME)}
            return failed and our == their | {"files": files}
    return False


EXPLANATIONS: dict[str, Callable[[Tier, Line | None, Line | None], bool]] = {
    "tier-minimum-of-a-pull": _minimum,
    "tier-last-time": _last_time,
    "tier-time-search": _time_search,
    "tier-time-of-ipv6": _time_of_ipv6,
    "tier-keys-of-expired": _expired_key,
    "tier-index-is-read-as-it-is": _index_as_it_is,
}
