"""What an act on a bad disk looks at: `stratamq status`, health, metrics, and reads."""

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from stratamq.cli.status import describe
from stratamq.client import Client, PullStatus
from stratamq.client.values import FollowerServiceState
from stratamq.errors import StrataError
from stratamq.rpc.endpoints import Endpoints
from stratamq_torture.disks.volume import Volume
from stratamq_torture.processes.ledger import Acknowledged
from stratamq_torture.processes.services import until
from stratamq_torture.processes.stage import Stage
from stratamq_torture.trial import TrialFailedError

WAIT_S = 30.0
ANSWER_S = 5.0
_NOT_YET = (
    PullStatus.OFFSET_OVERFLOW_ONE,
    PullStatus.OFFSET_OVERFLOW_BADLY,
    PullStatus.NO_MESSAGE_IN_QUEUE,
    PullStatus.NO_MATCHED_LOGIC_QUEUE,
)
"""Of a message that is acknowledged and not dispatched."""


class ActFailedError(TrialFailedError):
    """Something that was to happen did not; the sentence names it."""


@dataclass(slots=True)
class Scene:
    """One store on one volume, and what an act has noted."""

    stage: Stage
    volume: Volume
    notes: list[str] = field(default_factory=list)

    def until(self, happened, what: str) -> None:  # type: ignore[no-untyped-def]
        """ActFailedError with `what` when it does not happen in time."""
        if not until(happened, WAIT_S, look_s=0.05):
            raise ActFailedError(f"not within {WAIT_S} s: {what}; {self.states()}")

    def state(self, room: str) -> tuple[str, str]:
        """What `stratamq status` shows of one service: its state, and everything else in a line."""
        where = Endpoints(self.stage.root)
        with Client(where, timeout_s=ANSWER_S) as client:
            row, notes = describe(room, where, client)
        return str(row["state"]), "; ".join([str(row["detail"]), *(str(n["text"]) for n in notes)])

    def states(self) -> str:
        rooms = self.stage.services.running
        return ", ".join(f"{room}: {' | '.join(self.state(room))}" for room in rooms)

    def metric(self, room: str, name: str) -> float | None:
        """One value of the room's metrics endpoint."""
        endpoint = self.stage.services.announced(room)
        if endpoint is None:
            return None
        url = f"http://{endpoint.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            for line in answer.read().decode().splitlines():
                words = line.split()
                if len(words) == 2 and words[0].partition("{")[0].removesuffix("_total") == name:
                    return float(words[1])
        return None

    # --- producers and readers ---

    @property
    def acknowledged(self) -> int:
        return len(self.stage.ledger.acknowledged)

    @property
    def refused(self) -> dict[str, str]:
        return self.stage.ledger.refused

    def grows(self, messages: int, what: str) -> None:
        """So many more are acknowledged, the workload running."""
        goal = self.acknowledged + messages
        self.until(lambda: self.acknowledged >= goal, what)

    def stands_still(self, word: str) -> None:
        """Producers are refused, and every new refusal contains `word`."""
        before = set(self.refused)
        what = f"producers are refused with {word!r}"
        acknowledged = self.acknowledged

        def refused() -> bool:
            return any(word in self.refused[key] for key in set(self.refused) - before)

        if not until(refused, WAIT_S, look_s=0.05):
            others = {self.refused[key] for key in set(self.refused) - before}
            more = self.acknowledged - acknowledged
            raise ActFailedError(
                f"not within {WAIT_S} s: {what}; {more} were acknowledged meanwhile, others were "
                f"refused with {sorted(others)[:3]}; {self.states()}"
            )

    def reads(self) -> None:
        """What was acknowledged can be pulled, and asked for by its key.

        A message that the log acknowledged a moment ago reaches the dispatcher and the index a
        moment later. A dispatcher that has stopped gives what it had synced; an index that has
        stopped answers no query, and reports why.
        """
        acknowledged = self.stage.ledger.acknowledged
        admin = self.stage.workload.client.admin
        keys = list(acknowledged)  # in one go: it grows meanwhile
        for key in keys[:: max(1, len(keys) // 20)]:
            promise = acknowledged[key]
            self._reads(
                lambda key=key, promise=promise: self._pulls(key, promise),
                lambda promise=promise: _stopped_before(promise, admin.dispatch_state()),
                key,
            )
            self._reads(
                lambda key=key, promise=promise: self._finds(key, promise),
                lambda: bool(admin.index_state().stopped_reason),
                key,
            )

    def _reads(self, read: Callable[[], bool], is_excused: Callable[[], bool], key: str) -> None:
        try:
            self.until(lambda: read() or is_excused(), f"{key} can be read")
        except StrataError as error:
            if not is_excused():
                raise ActFailedError(f"{key} cannot be read: {error}; {self.states()}") from error

    def _pulls(self, key: str, promise: Acknowledged) -> bool:
        """Whether the message is in its queue."""
        place = promise.topic, promise.queue_id, promise.queue_offset
        pulled = self.stage.workload.client.pull(*place)
        if pulled.status in _NOT_YET:
            return False
        if pulled.status is not PullStatus.FOUND or pulled.messages[0].unique_key != key:
            raise ActFailedError(f"a pull of {key} gave {pulled.status.name}")
        return True

    def _finds(self, key: str, promise: Acknowledged) -> bool:
        """Whether a query gives a message."""
        return bool(self.stage.workload.client.query_unique_key(promise.topic, key).messages)


def _stopped_before(promise: Acknowledged, follower: FollowerServiceState) -> bool:
    """Whether a follower stopped before it had synced what it keeps of the message."""
    return bool(follower.stopped_reason) and follower.durable_offset <= promise.physical_offset
