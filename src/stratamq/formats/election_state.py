"""Who leads a cluster of members: the one value that their agents keep in an election store. JSON.

{"format": 1, "leader": "a", "term": 9, "renewal": 17, "paused": false, "switchover": "",
 "agents": {"a": "host:port"}, "members": ["a=host:port"],
 "unable": {"reason": "…", "ms": 31000, "slaves": 1, "generation": 42, "confirmed": 8000},
 "offer": {"member": "b", "generation": 42, "end": 8000}, "moves": 0, "succeeds": ""}

The last four are left out while there is nothing to say; a release that does not know them drops
them.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stratamq.errors import CorruptRecordError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Unable:
    """The leader could acknowledge nothing for `ms`, because of `reason`. `slaves`: for so many it
    waits. `generation`, `confirmed`: up to where its log is acknowledged, perhaps more by now."""

    reason: str
    ms: int
    slaves: int
    generation: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Offer:
    """`member` can take over: its log goes up to `end` of `generation`."""

    member: str
    generation: int
    end: int


@dataclass(frozen=True, slots=True)
class ElectionState:
    """`leader`: a member, "": none leads. `term`: of its log when it wrote this last. `renewal`
    counts what it wrote. `switchover`: the member that is to lead next; "": none was asked for.
    `agents`: where each member's agent takes calls, HOST:PORT. `members`: of the cluster, with
    their replication addresses, as the leader has them: another cluster's value is recognized.

    `unable`: the leader's own word; None: it acknowledges. `offer`: another member would take over.
    `moves`: how often the lead went to one that offered, since a leader acknowledged for long.
    `succeeds`: the member that has ended its lead for `leader`, which has not renewed yet."""

    leader: str = ""
    term: int = 0
    renewal: int = 0
    paused: bool = False
    switchover: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    unable: Unable | None = None
    offer: Offer | None = None
    moves: int = 0
    succeeds: str = ""


def encode_election_state(state: ElectionState) -> bytes:
    document: dict[str, object] = {
        "format": FORMAT,
        "leader": state.leader,
        "term": state.term,
        "renewal": state.renewal,
        "paused": state.paused,
        "switchover": state.switchover,
        "agents": dict(state.agents),
        "members": sorted(state.members),
    }
    if state.unable is not None:
        document["unable"] = asdict(state.unable)
    if state.offer is not None:
        document["offer"] = asdict(state.offer)
    if state.moves or state.succeeds:
        document |= {"moves": state.moves, "succeeds": state.succeeds}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_election_state(raw: bytes | str) -> ElectionState:
    """CorruptRecordError (reason `json`) for what is none, or is of a later format."""
    try:
        document = json.loads(raw)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this release knows {FORMAT}")
        return ElectionState(
            str(document["leader"]),
            int(document["term"]),
            int(document["renewal"]),
            bool(document["paused"]),
            str(document["switchover"]),
            {str(name): str(address) for name, address in document["agents"].items()},
            frozenset(map(str, document["members"])),
            _unable(document.get("unable")),
            _offer(document.get("offer")),
            int(document.get("moves", 0)),
            str(document.get("succeeds", "")),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no state of an election: {error}", 0, "json") from error


def _unable(found: Any) -> Unable | None:
    if found is None:
        return None
    return Unable(
        str(found["reason"]),
        int(found["ms"]),
        int(found["slaves"]),
        int(found["generation"]),
        int(found["confirmed"]),
    )


def _offer(found: Any) -> Offer | None:
    if found is None:
        return None
    return Offer(str(found["member"]), int(found["generation"]), int(found["end"]))
