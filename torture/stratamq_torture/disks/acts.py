"""What goes wrong with a disk, each act from load to load: how the services must take it.

Every act finds the workload running and leaves it so, all services up. What it demands beside that
nothing acknowledged is lost is in its docstring, which `--act list` shows.
"""

import urllib.request
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from stratamq.cli.status import describe
from stratamq.client import Client, PullStatus
from stratamq.client.values import FollowerServiceState
from stratamq.errors import StrataError
from stratamq.rpc.endpoints import Endpoints
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, INDEX
from stratamq_torture.disks.volume import Volume, failing
from stratamq_torture.processes.harness import Stage
from stratamq_torture.processes.ledger import Acknowledged
from stratamq_torture.processes.services import until
from stratamq_torture.trial import TrialFailedError

WAIT_S = 30.0
ANSWER_S = 5.0
_NOT_YET = (
    PullStatus.OFFSET_OVERFLOW_ONE,
    PullStatus.OFFSET_OVERFLOW_BADLY,
    PullStatus.NO_MESSAGE_IN_QUEUE,
    PullStatus.NO_MATCHED_LOGIC_QUEUE,
)
"""The statuses for a message that is acknowledged and not dispatched."""


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

    def grows(self, what: str) -> None:
        """Some more messages are acknowledged, the workload running."""
        goal = self.acknowledged + SOME
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


REFUSED_FROM, WRITABLE_BELOW = 0.95, 0.90
SOME = 50
AGAIN = "messages are taken again without a restart"

Act = Callable[[Scene], None]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    ACTS[function.__name__.replace("_", "-")] = function
    return function


@act
def filled_by_others(scene: Scene) -> None:
    """Another file fills the volume: writes refused with the reason, taken again when it is gone"""
    with _unharmed(scene):
        scene.volume.fill(REFUSED_FROM)
        scene.stands_still("full")
        scene.until(lambda: _reports_full(scene), REPORTED)
        scene.reads()
        scene.volume.free()


@act
def filled_to_the_last_byte(scene: Scene) -> None:
    """Not one block is left for anyone: the same, and the followers catch up afterwards"""
    with _unharmed(scene):
        scene.volume.fill(1.0)
        scene.stands_still("full")
        scene.reads()
        scene.volume.free()


@act
def filled_by_the_log(scene: Scene) -> None:
    """The log's own growth fills the volume: refused before its last block, then room is made"""
    with _unharmed(scene):
        scene.volume.fill(WRITABLE_BELOW - 0.08)
        # Two sentences: the volume is full, or the next segment would make it so.
        scene.stands_still("disk_refuse_ratio")
        scene.until(lambda: _reports_full(scene), REPORTED)
        if scene.volume.used_ratio > 0.99:
            raise ActFailedError(f"{scene.volume.used_ratio:.1%} of the volume is used")
        scene.reads()
        scene.volume.free()


@act
def started_when_full(scene: Scene) -> None:
    """All are killed and started with no block left: reads at once, writes when there is room"""
    scene.volume.fill(1.0)
    scene.stage.services.kill_all()
    scene.stage.restore()
    scene.reads()
    scene.stands_still("full")
    scene.volume.free()
    scene.grows("messages are taken without another restart")


@act
def read_only(scene: Scene) -> None:
    """The file system turns read-only: writing ends for good with the reason, reads continue;
    repaired and started again, all is there"""
    scene.volume.break_down()
    _log_has_stopped(scene, "Read-only file system", "Input/output error")
    scene.reads()
    scene.stage.services.kill_all()
    scene.volume.repair()
    scene.stage.restore()
    scene.grows("messages are taken after the repair")


@act
def log_flush_fails(scene: Scene) -> None:
    """fdatasync of the log fails with EIO, once: nothing is written any more until a restart"""
    _fails_once(scene, COMMITLOG, "fdatasync")
    _log_has_stopped(scene, "Input/output error")
    scene.reads()
    _restart(scene, COMMITLOG)


@act
def log_segment_has_no_room(scene: Scene) -> None:
    """The log's fallocate fails with ENOSPC for a while: refused, then taken again"""
    with _unharmed(scene), _failing(scene, COMMITLOG, "fallocate", "ENOSPC"):
        scene.stands_still("No space left")


@act
def log_state_cannot_be_written(scene: Scene) -> None:
    """rename fails with EIO in the log: its state files wait, messages are taken all the same"""
    with _unharmed(scene), _failing(scene, COMMITLOG, "rename,renameat2", "EIO"):
        pass


@act
def dispatcher_flush_fails(scene: Scene) -> None:
    """Syncs of the dispatcher fail with EIO: it stops for good with the reason"""
    _follower_stops(scene, DISPATCHER)


@act
def dispatcher_has_no_room(scene: Scene) -> None:
    """The dispatcher's writes fail with ENOSPC for a while: it serves, and continues by itself"""
    with _unharmed(scene), _failing(scene, DISPATCHER, "pwrite64,fallocate", "ENOSPC"):
        scene.grows("the log takes messages")
        scene.reads()


@act
def dispatcher_state_cannot_be_written(scene: Scene) -> None:
    """rename fails with EIO in the dispatcher for a while: it serves, and continues by itself"""
    with _unharmed(scene), _failing(scene, DISPATCHER, "rename,renameat2", "EIO"):
        scene.reads()


@act
def index_flush_fails(scene: Scene) -> None:
    """Syncs of the index fail with EIO: it stops for good with the reason"""
    _follower_stops(scene, INDEX)


@act
def index_has_no_room(scene: Scene) -> None:
    """The index's writes fail with ENOSPC for a while: it answers, and continues by itself"""
    with _unharmed(scene), _failing(scene, INDEX, "pwrite64,fallocate", "ENOSPC"):
        scene.reads()


# --- inside ---

REPORTED = "status reports that messages are refused, and why"


@contextmanager
def _unharmed(scene: Scene) -> Iterator[None]:
    """Messages are taken again in the end; no service was restarted, and all serve."""
    services = scene.stage.services
    rooms = services.running
    yield
    scene.grows(AGAIN)
    for room in rooms:
        if services.ended(room):
            raise services.failed(room, "ended by itself")
        scene.until(lambda room=room: scene.state(room)[0] == "ready", f"{room} is ready")


@contextmanager
def _failing(scene: Scene, room: str, calls: str, error: str, when: str = "1+") -> Iterator[None]:
    """From the first of these calls on."""
    pid = scene.stage.services.pid(room)
    with failing(pid, calls, error, scene.stage.directory, when) as injection:
        scene.until(injection.has_struck, f"{room} calls {calls}")
        yield


def _fails_once(scene: Scene, room: str, calls: str) -> None:
    with _failing(scene, room, calls, "EIO", when="1"):
        pass


def _reports_full(scene: Scene) -> bool:
    state, detail = scene.state(COMMITLOG)
    return state == "not writable" and "takes no messages: " in detail and "disk" in detail


def _stops(scene: Scene, room: str, states: Container[str], *reasons: str) -> None:
    """Its health is NOT_SERVING."""
    services = scene.stage.services

    def stopped() -> bool:
        if services.ended(room):
            raise services.failed(room, "ended by itself")
        return scene.state(room)[0] in states

    scene.until(stopped, f"the health of {room} is NOT_SERVING")
    detail = scene.state(room)[1]
    if not any(reason in detail for reason in reasons):
        raise ActFailedError(f"status does not show why {room} has stopped: {detail}")


def _log_has_stopped(scene: Scene, *reasons: str) -> None:
    """Fail-stop: every status has one of the kernel's reasons."""
    _stops(scene, COMMITLOG, ("not ready",), *reasons)
    scene.until(
        lambda: scene.metric(COMMITLOG, "commitlog_flush_failed") == 1,
        "the metric commitlog_flush_failed is 1",
    )
    scene.stands_still("nothing more is written")


def _follower_stops(scene: Scene, room: str) -> None:
    _fails_once(scene, room, "fdatasync,fsync,syncfs")
    _stops(scene, room, ("not ready", "stopped"), "Input/output error")
    scene.grows("the log takes messages meanwhile")
    _restart(scene, room)


def _restart(scene: Scene, room: str) -> None:
    services = scene.stage.services
    services.terminate(room)
    services.wait_stopped(room)
    scene.stage.restore()
    scene.grows("messages are taken after the restart")
