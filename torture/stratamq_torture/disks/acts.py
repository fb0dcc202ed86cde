"""What goes wrong with a disk, each act from load to load: how the services must take it.

Every act finds the workload running and leaves it so, all services up. What it demands beside that
nothing acknowledged is lost is in its docstring, which `--act list` shows.
"""

from collections.abc import Callable

from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, INDEX
from stratamq_torture.disks.injection import failing
from stratamq_torture.disks.scene import ActFailedError, Scene

REFUSED_FROM, WRITABLE_BELOW = 0.95, 0.90
SOME = 50


def filled_by_others(scene: Scene) -> None:
    """Another file fills the volume: writes refused with the reason, taken again when it is gone"""
    pids = _pids(scene)
    scene.volume.fill(REFUSED_FROM)
    scene.stands_still("full")
    scene.until(lambda: _reports_full(scene), "status reports that messages are refused, and why")
    scene.reads()
    scene.volume.free()
    scene.grows(SOME, "messages are taken again without a restart")
    _same(scene, pids)


def filled_to_the_last_byte(scene: Scene) -> None:
    """Not one block is left for anybody: the same, and the followers catch up afterwards"""
    pids = _pids(scene)
    scene.volume.fill(1.0)
    scene.stands_still("full")
    scene.reads()
    scene.volume.free()
    scene.grows(SOME, "messages are taken again without a restart")
    _same(scene, pids)


def filled_by_the_log(scene: Scene) -> None:
    """The log's own growth fills the volume: refused before its last block, then room is made"""
    pids = _pids(scene)
    scene.volume.fill(WRITABLE_BELOW - 0.08)
    # Two sentences: the volume is full, or the next segment would make it so.
    scene.stands_still("disk_refuse_ratio")
    scene.until(lambda: _reports_full(scene), "status reports that messages are refused, and why")
    if scene.volume.used_ratio > 0.99:
        raise ActFailedError(f"{scene.volume.used_ratio:.1%} of the volume is used")
    scene.reads()
    scene.volume.free()
    scene.grows(SOME, "messages are taken again without a restart")
    _same(scene, pids)


def started_when_full(scene: Scene) -> None:
    """All are killed and started with no block left: reads at once, writes when there is room"""
    services = scene.stage.services
    scene.volume.fill(1.0)
    services.kill_all()
    scene.stage.restore()
    scene.reads()
    scene.stands_still("full")
    scene.volume.free()
    scene.grows(SOME, "messages are taken without another restart")


def read_only(scene: Scene) -> None:
    """The file system turns read-only: writing ends for good with the reason, reads continue;
    repaired and started again, all is there"""
    services = scene.stage.services
    scene.volume.break_down()
    _log_has_stopped(scene, "Read-only file system", "Input/output error")
    scene.reads()
    services.kill_all()
    scene.volume.repair()
    scene.stage.restore()
    scene.grows(SOME, "messages are taken after the repair")


def log_flush_fails(scene: Scene) -> None:
    """fdatasync of the log fails with EIO, once: nothing is written any more until a restart"""
    _fails_once(scene, COMMITLOG, "fdatasync", "EIO")
    _log_has_stopped(scene, "Input/output error")
    scene.reads()
    _restart(scene, COMMITLOG)


def log_segment_has_no_room(scene: Scene) -> None:
    """The log's fallocate fails with ENOSPC for a while: refused, then taken again"""
    pids = _pids(scene)
    with failing(pids[COMMITLOG], "fallocate", "ENOSPC", scene.stage.directory) as injection:
        scene.until(injection.has_struck, "a segment is allocated")
        scene.stands_still("No space left")
    scene.grows(SOME, "messages are taken again without a restart")
    _same(scene, pids)


def log_state_cannot_be_written(scene: Scene) -> None:
    """rename fails with EIO in the log: its state files wait, messages are taken all the same"""
    pids = _pids(scene)
    with failing(pids[COMMITLOG], "rename,renameat2", "EIO", scene.stage.directory) as injection:
        scene.until(injection.has_struck, "a state file is written")
    scene.grows(SOME, "messages are taken again without a restart")
    _same(scene, pids)


def dispatcher_flush_fails(scene: Scene) -> None:
    """Syncs of the dispatcher fail with EIO: it stops for good with the reason"""
    _fails_once(scene, DISPATCHER, "fdatasync,fsync,syncfs", "EIO")
    _follower_has_stopped(scene, DISPATCHER)
    _restart(scene, DISPATCHER)


def dispatcher_has_no_room(scene: Scene) -> None:
    """The dispatcher's writes fail with ENOSPC for a while: it serves, and continues by itself"""
    pids = _pids(scene)
    with failing(pids[DISPATCHER], "pwrite64,fallocate", "ENOSPC", scene.stage.directory) as hit:
        scene.until(hit.has_struck, "the dispatcher writes")
        scene.grows(SOME, "the log takes messages")
        scene.reads()
    scene.grows(SOME, "the log takes messages")
    _same(scene, pids)


def dispatcher_state_cannot_be_written(scene: Scene) -> None:
    """rename fails with EIO in the dispatcher for a while: it serves, and continues by itself"""
    pids = _pids(scene)
    with failing(pids[DISPATCHER], "rename,renameat2", "EIO", scene.stage.directory) as hit:
        scene.until(hit.has_struck, "the dispatcher writes its watermark")
        scene.reads()
    scene.grows(SOME, "the log takes messages")
    _same(scene, pids)


def index_flush_fails(scene: Scene) -> None:
    """Syncs of the index fail with EIO: it stops for good with the reason"""
    _fails_once(scene, INDEX, "fdatasync,fsync,syncfs", "EIO")
    _follower_has_stopped(scene, INDEX)
    _restart(scene, INDEX)


def index_has_no_room(scene: Scene) -> None:
    """The index's writes fail with ENOSPC for a while: it answers, and continues by itself"""
    pids = _pids(scene)
    with failing(pids[INDEX], "pwrite64,fallocate", "ENOSPC", scene.stage.directory) as hit:
        scene.until(hit.has_struck, "the index writes")
        scene.reads()
    scene.grows(SOME, "the log takes messages")
    _same(scene, pids)


Act = Callable[[Scene], None]
ACTS: dict[str, Act] = {
    act.__name__.replace("_", "-"): act
    for act in (
        filled_by_others,
        filled_to_the_last_byte,
        filled_by_the_log,
        started_when_full,
        read_only,
        log_flush_fails,
        log_segment_has_no_room,
        log_state_cannot_be_written,
        dispatcher_flush_fails,
        dispatcher_has_no_room,
        dispatcher_state_cannot_be_written,
        index_flush_fails,
        index_has_no_room,
    )
}


# --- inside ---


def _pids(scene: Scene) -> dict[str, int]:
    services = scene.stage.services
    return {room: services.pid(room) for room in services.running}


def _reports_full(scene: Scene) -> bool:
    state, detail = scene.state(COMMITLOG)
    return state == "not writable" and "takes no messages: " in detail and "disk" in detail


def _same(scene: Scene, pids: dict[str, int]) -> None:
    """No service was restarted, and all serve."""
    services = scene.stage.services
    for room in pids:
        if services.ended(room):
            raise services.failed(room, "ended by itself")
        scene.until(lambda room=room: scene.state(room)[0] == "ready", f"{room} is ready")


def _fails_once(scene: Scene, room: str, calls: str, error: str) -> None:
    pid = scene.stage.services.pid(room)
    with failing(pid, calls, error, scene.stage.directory, when="1") as injection:
        scene.until(injection.has_struck, f"{room} calls {calls}")


def _log_has_stopped(scene: Scene, *reasons: str) -> None:
    """Fail-stop: every status has one of the kernel's reasons."""
    services = scene.stage.services

    def stopped() -> bool:
        if services.ended(COMMITLOG):
            raise services.failed(COMMITLOG, "ended by itself")
        return scene.state(COMMITLOG)[0] == "not ready"

    scene.until(stopped, "the log's health is NOT_SERVING")
    scene.until(
        lambda: scene.metric(COMMITLOG, "commitlog_flush_failed") == 1,
        "the metric commitlog_flush_failed is 1",
    )
    scene.stands_still("nothing more is written")
    detail = scene.state(COMMITLOG)[1]
    if not any(reason in detail for reason in reasons):
        raise ActFailedError(f"status does not show {' or '.join(reasons)}: {detail}")


def _follower_has_stopped(scene: Scene, room: str) -> None:
    services = scene.stage.services

    def stopped() -> bool:
        if services.ended(room):
            raise services.failed(room, "ended by itself")
        return scene.state(room)[0] in ("not ready", "stopped")

    scene.until(stopped, f"the health of {room} is NOT_SERVING")
    detail = scene.state(room)[1]
    if "Input/output error" not in detail:
        raise ActFailedError(f"status does not show why {room} has stopped: {detail}")
    scene.grows(SOME, "the log takes messages meanwhile")


def _restart(scene: Scene, room: str) -> None:
    services = scene.stage.services
    services.terminate(room)
    services.wait_stopped(room)
    scene.stage.restore()
    scene.grows(SOME, "messages are taken after the restart")
