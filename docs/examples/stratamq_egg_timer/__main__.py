"""The egg timer service: forwards messages to their topics at the times that they name, once."""

from dataclasses import dataclass

from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.follow.own_appends import OwnAppends
from stratamq.service.config import FollowerConfig, setting
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_egg_timer.eggs import Eggs


@dataclass(frozen=True)
class EggTimerConfig(FollowerConfig):
    save_interval_ms: int = setting(
        1_000, unit="ms", minimum=10, maximum=60_000, doc="How often the timers are written."
    )


async def main() -> None:
    service = Service("egg_timer", EggTimerConfig, __doc__)
    files, interval_ms = service.files, service.config.save_interval_ms
    followed, writing = FoldPlace(), service.worker("write")
    eggs = Eggs(followed)
    file = SnapshotFile(
        "stratamq/egg-timer.json", eggs, followed, files, writing, service.clock, interval_ms
    )
    file.load()
    appends = OwnAppends("egg_timer", eggs, followed, service.clock)

    def tick() -> float:
        file.tick()
        service.server.set_ready(followed.serving, followed.stopped_reason)
        return interval_ms / 1000

    moved = service.append(appends)
    service.follow(Fold("egg_timer", file, followed, files, moved=moved))
    service.tick(tick)
    service.on_close(file.close)
    await service.run()


if __name__ == "__main__":
    run_service(main)
