"""Finding a broker by the address of any one of its services, or of several of its cluster.

No I/O: `locate` is a plan of questions (`rpc.questions`).

1. Each address is asked which services its broker has, and each log that is found, when there may
   be several, for its role and term. When none answers, those are asked that were found the last
   time.
2. The master of the highest term is taken; without a master the broker that was taken before, if it
   answers, then one whose log answers, then any.

A master ends the search, but for a short grace, when no answer has a later term, now or before, and

* k + 1 members of its cluster have no later term: n - k promise a term before it is opened, so that
  there is no later one (decision 009), but by force; or
* its term is later than what was known: it was promoted since.

Until then all are waited for that may be its successor, and those that have answered are asked
again meanwhile. An address that was silent before holds up only the search for a master that is
later than the one that answers.

The addresses may be of brokers of several names, shards: `survey` finds the names, and `locate`
looks among the brokers of one of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stratamq.api.v1 import broker_pb2, commitlog_pb2
from stratamq.errors import (
    InvalidRequestError,
    NotPermittedError,
    StrataError,
    UnauthenticatedError,
    UnavailableError,
)
from stratamq.files.port import Clock
from stratamq.formats.log_state import LogState
from stratamq.rpc.address import is_local, seen_from, split_address
from stratamq.rpc.explaining import explained
from stratamq.rpc.log_state import log_state_value
from stratamq.rpc.methods import DESCRIBE_BROKER, METHODS, Method
from stratamq.rpc.questions import (
    GRACE_S,
    LONGEST_ANSWER_S,
    Answers,
    PendingQuestions,
    Plan,
    Question,
    Reply,
    Silence,
    Turn,
    ask_all,
    unanswered,
)
from stratamq.rpc.rooms import COMMITLOG

_STATUS = METHODS["GetStatus"]
_MAX_LOOKS = round(LONGEST_ANSWER_S / GRACE_S)
"""So often are those asked again that have answered."""


@dataclass(frozen=True, slots=True)
class FoundBroker:
    """The services of one broker, from where the client is. `obstacles`: why the others that have
    announced themselves cannot be reached. `term`: the highest that was heard of by the search that
    has chosen it; -1: of none."""

    asked: str
    name: str
    addresses: Mapping[str, str]
    obstacles: Mapping[str, str] = field(default_factory=dict)
    term: int = -1

    def address(self, room: str) -> str:
        """UnavailableError when the broker has no such service."""
        if room in self.addresses:
            return self.addresses[room]
        reason = f"no {room} service has announced itself there: is it running?"
        raise UnavailableError(f"the broker at {self.asked}: {self.obstacles.get(room, reason)}")


@dataclass(frozen=True, slots=True)
class Survey:
    """What is behind some addresses. `names`: the addresses of each broker name. `silent`: those of
    which no name is known now, and why."""

    names: Mapping[str, tuple[str, ...]]
    silent: Mapping[str, StrataError]


def survey(seeds: Sequence[str], silence: Silence, clock: Clock) -> Plan[Survey]:
    """All that were not silent before are waited for. UnavailableError when no address leads to a
    broker whose name is known, InvalidRequestError when other programs answer at all of them."""
    addresses = list(dict.fromkeys(seeds))
    replies = yield from _descriptions(addresses, silence, clock)
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


def _descriptions(addresses: Sequence[str], silence: Silence, clock: Clock) -> Plan[list[Reply]]:
    """Silent addresses are waited for as others until a broker with a name answers."""
    asking = PendingQuestions(silence, clock)
    replies: dict[str, Reply] = {}
    new = [_describe(address) for address in addresses]
    asking.begin(new)
    named = False
    while (wait_s := asking.wait_s(patient=not named)) != 0:
        answers = yield Turn(new, wait_s)
        asking.end(answers)
        new = []
        replies |= {question.address: reply for question, reply in answers}
        named = named or any(
            not isinstance(reply, StrataError) and reply.broker_name for _, reply in answers
        )
    for address in asking.give_up():
        replies[address] = unanswered(address)
    return [replies[address] for address in addresses]


def locate(
    seeds: Sequence[str],
    before: FoundBroker | None,
    name: str = "",
    own: Collection[str] = (),
    wider: Callable[[], Sequence[str]] | None = None,
    *,
    silence: Silence,
    clock: Clock,
) -> Plan[FoundBroker]:
    """The broker to use, with `name` among those of this name; what answers at one of the addresses
    `own` and gives no name counts as one of them. The addresses that `wider` gives are asked, too,
    when there is no master at the others. UnavailableError when no address answers,
    InvalidRequestError when another program does, or when the addresses are not of one cluster."""
    known = [] if before is None else [*before.addresses.values()]
    search = _Search(name, own, before, wider, PendingQuestions(silence, clock))
    yield from search.ask([*seeds, *known] if len(seeds) > 1 or wider is not None else seeds)
    if not search.brokers:
        yield from search.ask(known)
    search.asking.give_up()
    brokers = search.brokers
    if not brokers:
        raise search.failure(seeds)
    chosen = brokers[0] if len(brokers) == 1 else _chosen(brokers, search.states, before)
    return replace(chosen, term=search.highest_term)


class _Search:
    """The brokers of one name, "" any, at addresses that are asked bit by bit."""

    def __init__(
        self,
        name: str,
        own: Collection[str],
        before: FoundBroker | None,
        wider: Callable[[], Sequence[str]] | None,
        asking: PendingQuestions,
    ) -> None:
        self.asking = asking
        self.states: dict[str, LogState | StrataError] = {}
        """What logs answer, by their address."""
        self.highest_term = -1 if before is None else before.term
        self._name = name
        self._own = own
        self._before = before
        self._wider = wider
        self._several = wider is not None
        """Logs are asked for their roles."""
        self._found: dict[str, FoundBroker | None] = {}
        """By the address that was asked; None: there is none, or no answer yet."""
        self._others: set[str] = set()
        """Names that are not looked for."""
        self._errors: dict[str, StrataError] = {}
        self._looks_left = _MAX_LOOKS

    @property
    def brokers(self) -> list[FoundBroker]:
        return _distinct(one for one in self._found.values() if one is not None)

    def ask(self, addresses: Iterable[str]) -> Plan[None]:
        new = self._new(addresses)
        self._several = self._several or len(new) > 1
        while True:
            self.asking.begin(new)
            wait_s = self._wait_s()
            if not new and wait_s == 0:
                if not (new := self._further()):
                    return
                continue
            answers = yield Turn(new, wait_s)
            self.asking.end(answers)
            new = self._taken(answers)
            if not answers:
                new = [*self._further(), *self._again()]

    def _wait_s(self) -> float | None:
        self.asking.enough(found=self._is_settled())
        is_stale = -1 < self._master_term() < self.highest_term
        wait_s = self.asking.wait_s(patient=is_stale or not any(self._found.values()))
        # Those that have answered are asked again while others are waited for.
        return wait_s if wait_s is not None or not self.states else GRACE_S

    def _new(self, addresses: Iterable[str]) -> list[Question]:
        new = [one for one in dict.fromkeys(addresses) if one not in self._found]
        self._found |= dict.fromkeys(new)
        return [_describe(address) for address in new]

    def _taken(self, answers: Answers) -> list[Question]:
        """The questions that follow from answers."""
        logs: list[str] = []
        for question, reply in answers:
            if question.method is _STATUS:
                error = isinstance(reply, StrataError)
                self.states[question.address] = reply if error else log_state_value(reply)
            elif isinstance(reply, StrataError):
                self._errors[question.address] = explained(question.address, reply)
            else:
                one = found_broker(question.address, reply)
                if self._name and not _is_of(one, self._name, self._own, self._before):
                    self._others |= {one.name} - {""}
                    continue
                self._found[question.address] = one
                if COMMITLOG in one.addresses and self._several:
                    logs.append(one.addresses[COMMITLOG])
        self.highest_term = max([self.highest_term, *(state.term for state in self._answered())])
        return self._statuses(log for log in logs if log not in self.states)

    def _statuses(self, logs: Iterable[str]) -> list[Question]:
        request = commitlog_pb2.GetStatusRequest()
        questions = [Question(log, _STATUS, request) for log in dict.fromkeys(logs)]
        return [one for one in questions if not self.asking.waits_for(one)]

    def _further(self) -> list[Question]:
        """Without a master, or with one that has a later one, the wider addresses are asked."""
        wider = self._wider
        if wider is None or self._master_term() == self.highest_term != -1:
            return []
        self._wider = None
        return self._new(wider())

    def _again(self) -> list[Question]:
        """One of them may be the master meanwhile."""
        self._looks_left -= 1
        if self._looks_left < 0 or self._is_settled():
            return []
        return self._statuses(
            log for log, state in self.states.items() if not isinstance(state, StrataError)
        )

    def _master_term(self) -> int:
        """The highest of a master; -1: there is none."""
        terms = (state.term for state in self._answered() if state.is_master)
        return max(terms, default=-1)

    def _answered(self) -> list[LogState]:
        return [one for one in self.states.values() if not isinstance(one, StrataError)]

    def _is_settled(self) -> bool:
        """A master has answered that takes messages, and there is no later one."""
        states = self._answered()
        if not (self._name or self._before):
            return False  # of which name they are is to be known, too
        since = -1 if self._before is None else self._before.term
        return any(
            one.is_master
            and not (one.held_reason or one.lease_over)
            and one.term == self.highest_term
            and (-1 < since < one.term or _is_proven(one, states))
            for one in states
        )

    def failure(self, seeds: Sequence[str]) -> StrataError:
        """Why there is none."""
        if self._others and self._name:
            return _none_of(self._name, self._others, self._errors)
        return _no_answer({seed: self._errors[seed] for seed in seeds if seed in self._errors})


def _is_proven(master: LogState, states: Iterable[LogState]) -> bool:
    """k + 1 members have answered, and heard of no later term; `master` has the highest."""
    members = master.members
    if members is None:
        return False
    heard = {one.member for one in states if members.is_active(one.member) and not one.rejoining}
    return len(heard) > members.required and master.member in heard


def ask_members(
    seeds: Sequence[str], name: str, asked: Sequence[tuple[Method, Any]]
) -> Plan[dict[str, list[Reply]]]:
    """What the log service of each broker of this name, "" any, answers to these requests, asked at
    once; by its address. A seed that does not lead to a broker has its error. All are waited for.
    """
    addresses = list(dict.fromkeys(seeds))
    replies = yield from ask_all([_describe(address) for address in addresses])
    errors: dict[str, StrataError] = {}
    brokers = _distinct(_brokers(addresses, replies, errors))
    logs = [one.addresses[COMMITLOG] for one in brokers if _has_log(one, name)]
    answers = yield from ask_all([Question(at, *one) for at in logs for one in asked])
    found: dict[str, list[Reply]] = {seed: [error] for seed, error in errors.items()}
    for number, address in enumerate(logs):
        found[address] = answers[number * len(asked) :][: len(asked)]
    return found


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
    brokers: Sequence[FoundBroker],
    states: Mapping[str, LogState | StrataError],
    before: FoundBroker | None,
) -> FoundBroker:
    names = sorted({one.name for one in brokers if one.name})
    if len(names) > 1:
        raise InvalidRequestError(
            f"the addresses are of brokers of different names ({', '.join(names)}), and this call "
            "is of one of them: choose it, connect(..., broker=NAME) or --broker NAME"
        )
    masters: dict[int, tuple[FoundBroker, int]] = {}
    answering: set[str] = set()
    for one in brokers:
        state = states.get(one.addresses.get(COMMITLOG, ""))
        if state is None or isinstance(state, StrataError):
            continue
        answering.add(one.asked)
        if state.is_master:
            other, generation = masters.setdefault(state.term, (one, state.generation))
            # A generation has random bits: masters of the same one are one broker.
            is_same = 0 < generation == state.generation
            if other is not one and not is_same:
                raise InvalidRequestError(
                    f"the brokers at {other.asked} and {one.asked} are both masters of term "
                    f"{state.term}: they are not of one cluster, name one of them"
                )
    if masters:
        return masters[max(masters)][0]
    kept = set() if before is None else {*before.addresses.values()}
    return max(
        brokers,
        key=lambda one: (not kept.isdisjoint(one.addresses.values()), one.asked in answering),
    )


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
