"""Finding a broker by the address of any one of its services, or of several of its cluster.

No I/O: `locate` is a plan that yields questions, all to be asked at once, and gets their replies.

1. Each address is asked which services its broker has. When none answers, those are asked that
   were found the last time.
2. Of several brokers each log is asked for its role and term. The master of the highest term is
   taken; without a master the broker that was taken before, if it answers, then one whose log
   answers, then any.

The addresses may be of brokers of several names, shards: `survey` finds the names, and `locate`
looks among the brokers of one of them.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stratamq.api.v1 import broker_pb2, commitlog_pb2, common_pb2
from stratamq.errors import (
    InvalidRequestError,
    NotPermittedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
)
from stratamq.rpc.address import is_local, seen_from, split_address
from stratamq.rpc.methods import COMMITLOG, DESCRIBE_BROKER, METHODS, Method

_MASTERS = (common_pb2.BROKER_ROLE_ASYNC_MASTER, common_pb2.BROKER_ROLE_SYNC_MASTER)
LONGEST_ANSWER_S = 3.0
"""So long each question waits."""


@dataclass(frozen=True, slots=True)
class Question:
    address: str
    method: Method
    request: Any


Reply = Any
"""What the service answers, or the StrataError instead."""


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """The services of one broker, from where the client is. `obstacles`: why the others that have
    announced themselves cannot be reached."""

    asked: str
    name: str
    addresses: Mapping[str, str]
    obstacles: Mapping[str, str] = field(default_factory=dict)

    def address(self, room: str) -> str:
        """UnavailableError when the broker has no such service."""
        if room in self.addresses:
            return self.addresses[room]
        reason = f"no {room} service has announced itself there: is it running?"
        raise UnavailableError(f"the broker at {self.asked}: {self.obstacles.get(room, reason)}")


LocatePlan = Generator[list[Question], list[Reply], FoundBroker]


@dataclass(frozen=True, slots=True)
class Survey:
    """What is behind some addresses. `names`: the addresses of each broker name. `silent`: those of
    which no name is known now, and why."""

    names: Mapping[str, tuple[str, ...]]
    silent: Mapping[str, StrataError]


SurveyPlan = Generator[list[Question], list[Reply], Survey]


def survey(seeds: Sequence[str]) -> SurveyPlan:
    """UnavailableError when no address leads to a broker whose name is known, InvalidRequestError
    when other programs answer at all of them."""
    addresses = list(dict.fromkeys(seeds))
    replies = yield [_describe(address) for address in addresses]
    silent: dict[str, StrataError] = {}
    names: dict[str, list[str]] = {}
    for one in _brokers(addresses, replies, silent):
        if one.name:
            names.setdefault(one.name, []).append(one.asked)
        else:
            silent[one.asked] = UnavailableError(
                f"the broker at {one.asked} gives no name: its log service is not running"
            )
    if not names:
        raise _no_answer(silent)
    return Survey({name: tuple(names[name]) for name in sorted(names)}, silent)


def locate(
    seeds: Sequence[str],
    before: FoundBroker | None,
    name: str = "",
    own: Collection[str] = (),
    wider: Callable[[], Sequence[str]] | None = None,
) -> LocatePlan:
    """The broker to use, with `name` among those of this name; what answers at one of the addresses
    `own` and gives no name counts as one of them. The addresses that `wider` gives are asked, too,
    when there is no master at the others. UnavailableError when no address answers,
    InvalidRequestError when another program does, or when the addresses are not of one cluster."""
    known = [] if before is None else [*before.addresses.values()]
    search = _Search(name, own, before)
    yield from search.ask([*seeds, *known] if len(seeds) > 1 else seeds)
    if not search.brokers:
        yield from search.ask(known)
    states: dict[str, Reply] = {}
    if len(search.brokers) > 1 or wider is not None:
        states = yield from _states(search.brokers)
    if wider is not None and not _has_master(states):
        yield from search.ask(wider())
        states |= yield from _states([one for one in search.brokers if one.asked not in states])
    if not search.brokers:
        raise search.failure(seeds)
    brokers = search.brokers
    return brokers[0] if len(brokers) == 1 else _chosen(brokers, states, before)


class _Search:
    """The brokers of one name, "" any, at addresses that are asked bit by bit."""

    def __init__(self, name: str, own: Collection[str], before: FoundBroker | None) -> None:
        self.brokers: list[FoundBroker] = []
        self._name = name
        self._own = own
        self._before = before
        self._asked: set[str] = set()
        self._others: set[str] = set()
        """Names that are not looked for."""
        self._errors: dict[str, StrataError] = {}

    def ask(self, addresses: Iterable[str]) -> Generator[list[Question], list[Reply], None]:
        new = [one for one in dict.fromkeys(addresses) if one not in self._asked]
        if not new:
            return
        self._asked |= set(new)
        replies = yield [_describe(address) for address in new]
        found = _distinct([*self.brokers, *_brokers(new, replies, self._errors)])
        self._others |= {one.name for one in found} - {self._name, ""}
        self.brokers = [one for one in found if not self._name or self._is_wanted(one)]

    def _is_wanted(self, one: FoundBroker) -> bool:
        return _is_of(one, self._name, self._own, self._before)

    def failure(self, seeds: Sequence[str]) -> StrataError:
        """Why there is none."""
        if self._others and self._name:
            return _none_of(self._name, self._others, self._errors)
        return _no_answer({seed: self._errors[seed] for seed in seeds if seed in self._errors})


def _states(
    brokers: Iterable[FoundBroker],
) -> Generator[list[Question], list[Reply], dict[str, Reply]]:
    """Of those that have a log: what it answers, by the address that was asked first."""
    with_logs = [one for one in brokers if COMMITLOG in one.addresses]
    request = commitlog_pb2.GetStatusRequest()
    found = yield [
        Question(one.addresses[COMMITLOG], METHODS["GetStatus"], request) for one in with_logs
    ]
    return {one.asked: state for one, state in zip(with_logs, found, strict=True)}


def _has_master(states: Mapping[str, Reply]) -> bool:
    return any(not isinstance(one, StrataError) and one.role in _MASTERS for one in states.values())


MembersPlan = Generator[list[Question], list[Reply], dict[str, Reply]]


def ask_members(seeds: Sequence[str], name: str, method: Method, request: Any) -> MembersPlan:
    """What the log service of each broker of this name, "" any, answers; by its address. A seed
    that does not lead to a broker has its error."""
    addresses = list(dict.fromkeys(seeds))
    replies = yield [_describe(address) for address in addresses]
    errors: dict[str, StrataError] = {}
    brokers = _distinct(_brokers(addresses, replies, errors))
    logs = [one.addresses[COMMITLOG] for one in brokers if _has_log(one, name)]
    answers = yield [Question(address, method, request) for address in logs]
    return {**errors, **dict(zip(logs, answers, strict=True))}


def _has_log(one: FoundBroker, name: str) -> bool:
    return COMMITLOG in one.addresses and name in ("", one.name)


def _is_of(one: FoundBroker, name: str, own: Collection[str], before: FoundBroker | None) -> bool:
    if one.name:
        return one.name == name
    known = set() if before is None else {*before.addresses.values()}
    return one.asked in own or not known.isdisjoint(one.addresses.values())


def _none_of(name: str, others: Collection[str], errors: Mapping[str, StrataError]) -> StrataError:
    there = f"no broker of the name {name} answers; there are {', '.join(sorted(others))}"
    if errors:
        return UnavailableError("; ".join([there, *(one.message for one in errors.values())]))
    return InvalidRequestError(there)


def _describe(address: str) -> Question:
    return Question(address, DESCRIBE_BROKER, broker_pb2.DescribeBrokerRequest())


def _brokers(
    addresses: Iterable[str], replies: Iterable[Reply], errors: dict[str, StrataError]
) -> Iterable[FoundBroker]:
    for address, reply in zip(addresses, replies, strict=True):
        if isinstance(reply, StrataError):
            errors[address] = explained(address, reply)
        else:
            yield found_broker(address, reply)


def found_broker(asked: str, reply: broker_pb2.DescribeBrokerResponse) -> FoundBroker:
    """What a service at `asked` has told, from where the client is."""
    advertised = {place.service: place.address for place in reply.services}
    answerer = advertised.get(reply.answered_by, "")
    addresses: dict[str, str] = {}
    obstacles: dict[str, str] = {}
    for room, address in advertised.items():
        if not is_local(address) or is_local(asked):
            addresses[room] = seen_from(asked, address)
        elif answerer and is_local(answerer):
            # Its machine alone can reach it, and so was it reached: by a tunnel, or a name.
            addresses[room] = seen_from(asked, f":{split_address(address)[1]}")
        else:
            obstacles[room] = (
                f"the {room} service listens at {address}, which only its own machine reaches: set "
                f"{room}.address or {room}.advertised_host (`stratamq up --bind HOST` sets all)"
            )
    # The service that answered is where it was asked, whatever it believes.
    if reply.answered_by in obstacles:
        del obstacles[reply.answered_by]
    addresses.setdefault(reply.answered_by, asked)
    return FoundBroker(asked, reply.broker_name, addresses, obstacles)


def _distinct(brokers: Iterable[FoundBroker]) -> list[FoundBroker]:
    """Each broker once: what has the same log is the same one."""
    found: dict[str, FoundBroker] = {}
    for one in brokers:
        found.setdefault(one.addresses.get(COMMITLOG, one.asked), one)
    return list(found.values())


def _chosen(
    brokers: Sequence[FoundBroker], states: Mapping[str, Reply], before: FoundBroker | None
) -> FoundBroker:
    names = sorted({one.name for one in brokers if one.name})
    if len(names) > 1:
        raise InvalidRequestError(
            f"the addresses are of brokers of different names ({', '.join(names)}), and this call "
            "is of one of them: choose it, connect(..., broker=NAME) or --broker NAME"
        )
    masters: dict[int, FoundBroker] = {}
    answering: set[str] = set()
    for one in brokers:
        state = states.get(one.asked)
        if state is None or isinstance(state, StrataError):
            continue
        answering.add(one.asked)
        if state.role in _MASTERS:
            other = masters.setdefault(state.term, one)
            if other is not one and not _is_same_log(states[other.asked], state):
                raise InvalidRequestError(
                    f"the brokers at {other.asked} and {one.asked} are both masters of term "
                    f"{state.term}: they are not of one cluster, name one of them"
                )
    if masters:
        return masters[max(masters)]
    kept = set() if before is None else {*before.addresses.values()}
    return max(
        brokers,
        key=lambda one: (not kept.isdisjoint(one.addresses.values()), one.asked in answering),
    )


def _is_same_log(one: Reply, other: Reply) -> bool:
    """A generation has random bits: masters of the same one are one broker at two addresses."""
    last = [list(state.generations)[-1:] for state in (one, other)]
    return bool(last[0]) and last[0] == last[1]


def _no_answer(errors: Mapping[str, StrataError]) -> StrataError:
    """Why no address led to a broker. InvalidRequestError when nothing can change by itself."""
    sentences = [error.message for error in errors.values()]
    if len(sentences) > 1:
        sentences = [f"none of the {len(sentences)} addresses leads to a broker", *sentences]
    kinds = {type(error) for error in errors.values()}
    if len(kinds) == 1 and kinds <= {UnauthenticatedError, NotPermittedError}:
        return kinds.pop()("; ".join(sentences))
    final = all(isinstance(error, InvalidRequestError) for error in errors.values())
    return (InvalidRequestError if final else UnavailableError)("; ".join(sentences))


def explained(address: str, error: StrataError) -> StrataError:
    """What kept a service at `address` from answering, for a person who has typed it."""
    text = error.message
    status = error.fields.get("status")
    if status == "UNIMPLEMENTED":
        return InvalidRequestError(
            f"what listens at {address} is no service of StrataMQ, or one of an earlier version: "
            "it does not know where its broker is"
        )
    if any(fragment in text for fragment in _OTHER_PROTOCOLS):
        return InvalidRequestError(
            f"what listens at {address} is no StrataMQ: it does not speak gRPC (a web server?)"
        )
    if isinstance(error, (UnauthenticatedError, NotPermittedError)):
        return error
    if not isinstance(error, UnavailableError):
        return InvalidRequestError(f"what listens at {address} is no StrataMQ: {text}")
    for fragment, sentence in _SENTENCES.items():
        if fragment in text:
            return UnavailableError(sentence.format(address=address))
    if status == "DEADLINE_EXCEEDED":
        return UnavailableError(_SILENT.format(address=address))
    return UnavailableError(f"no StrataMQ answers at {address}: {text}")


_SILENT = (
    "{address} does not answer: is the host right, does a firewall keep connections out, does "
    "another program listen there?"
)
_OTHER_PROTOCOLS = ("HTTP/2", "http1", "HTTP/1")
_UNKNOWN_HOST = "the host of {address} is not known"
_LEFT = (
    "what listens at {address} has closed the connection: it is starting or stopping, asks for TLS "
    "(set STRATAMQ_TLS_CA), has as many connections as it takes (limits.connections), or is no "
    "StrataMQ (RocketMQ's own ports do not speak gRPC)"
)
_SENTENCES = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate at {address} is not of an authority in "
    "STRATAMQ_TLS_CA, or has expired",
    "BAD_SIGNATURE": "the certificate at {address} is not of an authority in STRATAMQ_TLS_CA",
    "Hostname Verification Check failed": "the certificate at {address} is for other hosts: type "
    "one of those that it names (`stratamq tls issue … --host`)",
    "WRONG_VERSION_NUMBER": "what listens at {address} does without TLS: unset STRATAMQ_TLS_CA",
    "CERTIFICATE_REQUIRED": "what listens at {address} asks for a client certificate: set "
    "STRATAMQ_TLS_CERTIFICATE and STRATAMQ_TLS_KEY",
    "Connection refused": "nothing listens at {address}: is the broker running, is it this port?",
    "DNS resolution failed": _UNKNOWN_HOST,
    "errors resolving": _UNKNOWN_HOST,
    "Domain name not found": _UNKNOWN_HOST,
    "No route to host": "there is no way to the host of {address}",
    "Network is unreachable": "there is no way to the host of {address}",
    "timed out": _SILENT,
    "Timeout": _SILENT,
    "handshaker shutdown": _SILENT,
    "Socket closed": _LEFT,
    "Connection reset": _LEFT,
}
