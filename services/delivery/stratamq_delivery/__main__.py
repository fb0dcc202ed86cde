"""The delivery service: delayed messages, transactions, and shared groups."""

from stratamq.follow.fold import Fold, FoldPlace, SnapshotFile
from stratamq.follow.own_appends import OwnAppends
from stratamq.follow.own_log import OwnLog
from stratamq.follow.queues import QueueCalls
from stratamq.follow.tables import Owners
from stratamq.formats.delay import parse_delay_levels
from stratamq.formats.store_paths import DELIVERY_STATE_PATH
from stratamq.service.process import Service
from stratamq.service.server import run_service
from stratamq_delivery.checkers import Checkers
from stratamq_delivery.config import DeliveryConfig
from stratamq_delivery.delivery import Delivery
from stratamq_delivery.ending import Ending
from stratamq_delivery.known_ends import KnownEnds
from stratamq_delivery.levels import Levels
from stratamq_delivery.metrics import Observer
from stratamq_delivery.replays import Replays
from stratamq_delivery.rocketmq_files import RocketMQFiles
from stratamq_delivery.schedule import Schedule
from stratamq_delivery.servicer import DeliveryServicer
from stratamq_delivery.shared_groups import SharedGroups
from stratamq_delivery.sharing import Sharing
from stratamq_delivery.taken_over import TakenOver
from stratamq_delivery.timed_messages import TimedMessages
from stratamq_delivery.transactions import Transactions


async def main() -> None:
    service = Service("delivery", DeliveryConfig, __doc__)
    config, files, clock, random = service.config, service.files, service.clock, service.random
    followed, saving = FoldPlace(), (files, service.worker("write"), clock)
    levels_ms, attempts = parse_delay_levels(config.message_delay_level), config.shared_attempts
    ends, checkers, taken_over = KnownEnds(service.demand), Checkers(random), TakenOver(followed)
    levels = Levels(levels_ms, followed, taken_over)
    timed = TimedMessages(config.timer_roll_ms, followed, taken_over)
    groups, replays = SharedGroups(followed, ends), Replays(followed, ends.lines.arrived)
    transactions = Transactions(followed, config.check_rules(), checkers, taken_over)
    room = Delivery([taken_over, levels, timed, groups, replays, transactions], followed)
    state = SnapshotFile(DELIVERY_STATE_PATH, room, followed, *saving, config.save_interval_ms)
    state.load()
    appends = OwnAppends("delivery", room, followed, clock)
    written = (followed, *saving, config.delay_offsets_interval_ms)
    exports = RocketMQFiles(levels.positions, groups, attempts, appends, *written)
    exports.load()
    appended, queues = service.append(appends), QueueCalls(service.channels)
    log = OwnLog(service.channels)

    def tick() -> float:
        state.tick()
        exports.tick(appended)
        ending.tick()
        service.server.set_ready(followed.serving, followed.stopped_reason)
        return min(500, config.save_interval_ms) / 1000

    def moved() -> None:
        groups.moved(appends.is_active)
        replays.moved(appends.is_active)
        ending.moved()
        schedule.moved()
        appended()

    sharing = Sharing(groups, replays, ends, followed, appends, queues, random, appended, attempts)
    sharing.start(service.spawn, Owners(service.channels).export)
    ending = Ending(transactions, checkers, followed, appends, log, appended, service.demand)
    ending.start(service.spawn, queues)
    schedule = Schedule(taken_over, levels, timed, transactions, exports, appends, queues, appended)
    decided = sharing, ending, schedule
    servicer = DeliveryServicer(room, followed, appends, levels, timed, *decided, log, clock)
    service.offer(servicer)
    service.follow(Fold("delivery", state, followed, files, moved=moved, delay_levels_ms=levels_ms))
    observed = followed, appends, levels, timed, transactions, groups, replays
    service.tick(tick, Observer(*observed).observe)
    service.on_close(state.close, exports.close)
    await service.run(drain=servicer.drain)


if __name__ == "__main__":
    run_service(main)
