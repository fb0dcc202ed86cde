"""Who leads a cluster of members: the one value that their agents keep in an election store. JSON.

{"format": 1, "leader": "a", "term": 9, "renewal": 17, "paused": false, "switchover": "",
 "agents": {"a": "host:port"}, "members": ["a=host:port"]}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from stratamq.errors import CorruptRecordError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ElectionState:
    """`leader`: a member, "": none leads. `term`: of its log when it wrote this last. `renewal`
    counts what it wrote. `switchover`: the member that is to lead next; "": none was asked for.
    `agents`: where each member's agent takes calls, HOST:PORT. `members`: of the cluster, with
    their replication addresses, as the leader has them: another cluster's value is recognized."""

    leader: str = ""
    term: int = 0
    renewal: int = 0
    paused: bool = False
    switchover: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    members: frozenset[str] = frozenset()


def encode_election_state(state: ElectionState) -> bytes:
    document = {
        "format": FORMAT,
        "leader": state.leader,
        "term": state.term,
        "renewal": state.renewal,
        "paused": state.paused,
        "switchover": state.switchover,
        "agents": dict(state.agents),
        "members": sorted(state.members),
    }
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
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no state of an election: {error}", 0, "json") from error
