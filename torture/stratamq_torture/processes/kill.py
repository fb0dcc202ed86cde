"""`stratamq torture kill`: rounds of load, a kill at a named point, a restart, and the check.

A point watches what anyone can see from outside (files that appear and change, answers that were
given, whether a service listens or serves) and strikes then. It leaves nothing paused; whatever it
leaves dead is started again behind it, in a random order.
"""

import os
from collections.abc import Callable
from pathlib import Path

from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, ESSENTIAL, INDEX
from stratamq_torture.processes.harness import SEGMENT_BYTES, Rounds, Stage
from stratamq_torture.processes.services import directory_names, until
from stratamq_torture.trial import Deck, Options, Progress, Report

ROUNDS_OF_A_STORE = 10
FLUSH_TYPES = ("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH")
"""A killed process loses nothing under either; every third store flushes asynchronously."""
MESSAGES_BEFORE, MESSAGES_AFTER = 100, 50


def run_kills(options: Options, progress: Progress = None, point: str = "") -> Report:
    """The trial. The real processes decide what happens when: a seed brings the same acts on the
    same messages, not the same microseconds."""
    trial = Rounds("kill", options, progress, f" --point {point}" if point else "")
    deck = Deck(trial.chance, sorted(POINTS))

    def play() -> None:
        """One store."""
        flush = FLUSH_TYPES[trial.report.seeds % len(FLUSH_TYPES)]
        stage = Stage(trial.next_seed(), (f"commitlog.flush_disk_type={flush}",))

        def strike() -> None:
            drawn = point or deck.draw()
            trial.where = f"{drawn}, {flush}"
            stage.grow(MESSAGES_BEFORE)
            POINTS[drawn](stage)
            stage.restore()
            stage.grow(MESSAGES_AFTER)
            trial.met[drawn] += 1

        trial.play(stage, ROUNDS_OF_A_STORE, strike)

    report = trial.run(play)
    report.notes.append(f"{report.rounds} rounds on {report.seeds} stores: {trial.summary}")
    return report


Point = Callable[[Stage], None]

LOOK_S = 0.001
LONGEST_WAIT_S = 5.0
"""A point that does not come within this strikes all the same."""
FOLLOWERS = (DISPATCHER, INDEX)
OWN_STATE = {DISPATCHER: "stratamq/dispatcher.json", INDEX: "stratamq/index.json"}

POINTS: dict[str, Point] = {}


def point(function: Point) -> Point:
    POINTS[function.__name__.replace("_", "-")] = function
    return function


# --- while messages come in ---


@point
def any_service(stage: Stage) -> None:
    """One of them, at any time."""
    stage.wait(0.3)
    stage.services.kill(stage.chance.choice(ESSENTIAL))


@point
def everything(stage: Stage) -> None:
    """All three at once."""
    stage.wait(0.3)
    stage.services.kill_all()


@point
def segment_allocated(stage: Stage) -> None:
    """The log when a new segment file appears."""
    strike_when_changed(stage, lambda: names(stage, "commitlog"), COMMITLOG)


@point
def segment_rolled(stage: Stage) -> None:
    """The log when an answer is in another segment than the one before."""
    strike_when_changed(stage, lambda: stage.ledger.newest_offset // SEGMENT_BYTES, COMMITLOG)


@point
def flush_under_load(stage: Stage) -> None:
    """The log while appends wait for the disk."""
    stage.wait(0.2)
    until(lambda: stage.workload.unanswered > 8, LONGEST_WAIT_S, 0.0)
    stage.services.kill(COMMITLOG)


@point
def snapshot(stage: Stage) -> None:
    """The log when its queue-offset snapshot has been replaced."""
    strike_when_changed(stage, lambda: state_of(stage, "stratamq/queue-offsets.journal"), COMMITLOG)


@point
def checkpoint(stage: Stage) -> None:
    """The log when the checkpoint has been written."""
    strike_when_changed(stage, lambda: state_of(stage, "checkpoint"), COMMITLOG)


@point
def dispatcher_watermark(stage: Stage) -> None:
    """The dispatcher when its watermark has been replaced."""
    strike_when_changed(stage, lambda: state_of(stage, OWN_STATE[DISPATCHER]), DISPATCHER)


@point
def queue_file_rolled(stage: Stage) -> None:
    """The dispatcher when a queue begins a new file."""
    strike_when_changed(
        stage,
        lambda: [
            len(files)
            for _, directories, files in os.walk(stage.root / "consumequeue")
            if not directories
        ],
        DISPATCHER,
    )


@point
def index_watermark(stage: Stage) -> None:
    """The index when its watermark has been replaced."""
    strike_when_changed(stage, lambda: state_of(stage, OWN_STATE[INDEX]), INDEX)


@point
def index_file_rolled(stage: Stage) -> None:
    """The index when it begins a new file."""
    strike_when_changed(stage, lambda: names(stage, "index"), INDEX)


# --- while services start and stop ---


@point
def start(stage: Stage) -> None:
    """A service while it starts, before it listens, and once more."""
    room = stage.chance.choice(ESSENTIAL)
    stage.services.kill(room)
    for _ in range(2):
        stage.services.spawn(room)
        stage.wait(0.5)
        stage.services.kill(room)


@point
def recovery(stage: Stage) -> None:
    """The log during its recovery: from listening to serving, three times."""
    stage.services.kill(COMMITLOG)
    for _ in range(3):
        stage.services.spawn(COMMITLOG)
        stage.services.wait_announced(COMMITLOG)
        stage.wait(0.05)
        stage.services.kill(COMMITLOG)


@point
def new_generation(stage: Stage) -> None:
    """The log when its recovery has written the list of generations."""
    stage.services.kill(COMMITLOG)
    before = state_of(stage, "stratamq/generations.json")
    stage.services.spawn(COMMITLOG)
    until(lambda: state_of(stage, "stratamq/generations.json") != before, LONGEST_WAIT_S, LOOK_S)
    stage.services.kill(COMMITLOG)


@point
def catch_up(stage: Stage) -> None:
    """The followers while they catch up with what they missed."""
    stage.services.kill(*FOLLOWERS)
    grow_a_segment(stage)
    for room in FOLLOWERS:
        stage.services.spawn(room)
        stage.services.wait_announced(room)
    stage.wait(0.1)
    stage.services.kill(*FOLLOWERS)


@point
def rebuild(stage: Stage) -> None:
    """A follower that lost its own state, while it compares or builds all its files again."""
    room = stage.chance.choice(FOLLOWERS)
    stage.services.kill(room)
    (stage.root / OWN_STATE[room]).unlink(missing_ok=True)
    stage.services.spawn(room)
    stage.services.wait_announced(room)
    stage.wait(0.2)
    stage.services.kill(room)


@point
def stopping(stage: Stage) -> None:
    """A service between SIGTERM and its end."""
    room = stage.chance.choice(ESSENTIAL)
    stage.services.terminate(room)
    stage.wait(0.2)
    stage.services.kill(room)


@point
def everything_stopping(stage: Stage) -> None:
    """All of them between SIGTERM and their ends."""
    for room in stage.chance.sample(ESSENTIAL, len(ESSENTIAL)):
        stage.services.terminate(room)
    stage.wait(0.4)
    stage.services.kill_all()


# --- orders of starting ---


@point
def log_without_followers(stage: Stage) -> None:
    """The followers, then the log after it has continued without them; it continues once more."""
    stage.services.kill(*FOLLOWERS)
    grow_a_segment(stage)
    stage.services.kill(COMMITLOG)
    stage.services.start([COMMITLOG])
    stage.grow(30)


@point
def followers_without_log(stage: Stage) -> None:
    """The log, then the followers, which start and listen while there is no log."""
    stage.services.kill(COMMITLOG)
    stage.services.kill(*FOLLOWERS)
    for room in FOLLOWERS:
        stage.services.spawn(room)
        stage.services.wait_announced(room)
    if stage.chance.random() < 0.5:
        stage.services.kill(stage.chance.choice(FOLLOWERS))


@point
def clean_restart(stage: Stage) -> None:
    """No service is killed: everything stops in order, in the middle of the load."""
    stage.services.stop()


# --- paused processes ---


@point
def follower_paused(stage: Stage) -> None:
    """A follower is paused while the log grows; then it continues, or dies, or the log does."""
    room = stage.chance.choice(FOLLOWERS)
    stage.services.pause(room)
    grow_a_segment(stage)
    then = stage.chance.choice(("continues", "dies", "log dies"))
    if then == "dies":
        stage.services.kill(room)
        return
    if then == "log dies":
        stage.services.kill(COMMITLOG)
    stage.services.resume(room)


@point
def log_paused(stage: Stage) -> None:
    """The log is paused; then it continues, or dies, or a follower dies meanwhile."""
    stage.wait(0.1)
    stage.services.pause(COMMITLOG)
    stage.wait(0.3)
    then = stage.chance.choice(("continues", "dies", "followers die"))
    if then == "dies":
        stage.services.kill(COMMITLOG)
        return
    if then == "followers die":
        stage.services.kill(*FOLLOWERS)
    stage.services.resume(COMMITLOG)


# --- words that points are made of ---


def strike_when_changed(stage: Stage, look: Callable[[], object], room: str) -> None:
    """Kill `room`, now and then everything, once `look` answers something else than now."""
    before = look()
    until(lambda: look() != before, LONGEST_WAIT_S, LOOK_S)
    if stage.chance.random() < 0.25:
        stage.services.kill_all()
    else:
        stage.services.kill(room)


def grow_a_segment(stage: Stage) -> None:
    """The log grows by about a segment while the workload runs."""
    goal = len(stage.ledger.acknowledged) + SEGMENT_BYTES // 700
    until(lambda: len(stage.ledger.acknowledged) >= goal, LONGEST_WAIT_S)


def names(stage: Stage, directory: str) -> list[str]:
    return directory_names(stage.root / directory)


def state_of(stage: Stage, path: str) -> object:
    """Changes when the file is replaced, written or removed."""
    try:
        status = os.stat(Path(stage.root, path))
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
