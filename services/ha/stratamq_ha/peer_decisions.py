"""What a broker decides about itself (`peer_policy.decide`), and the answers that it decides by."""

from dataclasses import dataclass

from stratamq.formats.members import Members
from stratamq.formats.replication_peers import PeerStatus


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What the broker at `address` answered: its peer status, or why there is none."""

    address: str
    peer_status: PeerStatus | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RefuseMessages:
    """Take no messages, for that reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Serve:
    """Take messages."""


@dataclass(frozen=True, slots=True)
class OpenTerm:
    """For a master whose log is empty, like all others: begin its first own term, then decide
    again."""

    term: int


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """Count as a member from now on: this broker founds the cluster. Then decide again."""


@dataclass(frozen=True, slots=True)
class Forgot:
    """Do not count this directory in the quorum until it has joined again: it is older than what it
    promised."""

    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make these the members in force. Then decide again."""

    members: Members


@dataclass(frozen=True, slots=True)
class Follow:
    """Be a slave of the broker at `address`, "" if that is not known yet. `term`: the
    term received; `reason`: a sentence that is kept."""

    address: str
    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class PromiseTerm:
    """Promise `term` to the member `candidate` at `address`: be a slave, and follow no master of a
    lower term.

    It is durable before the promoted member takes a message: an old master that was only cut off
    gets no acknowledgement when it is back.
    """

    address: str
    term: int
    candidate: str
    reason: str


@dataclass(frozen=True, slots=True)
class Stay:
    """No change. `problem`: what an operator should read."""

    problem: str = ""


Decision = (
    RefuseMessages | Serve | OpenTerm | FoundCluster | Forgot | Adopt | Follow | PromiseTerm | Stay
)
