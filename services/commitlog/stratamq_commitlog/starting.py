"""A start up to the log's state: what the directory holds, which role it has, its generation."""

from collections.abc import Callable

from stratamq.store.origin import store_origin
from stratamq_commitlog.log_parts import BaseParts
from stratamq_commitlog.recovery import inspection, opening
from stratamq_commitlog.recovery.walk_ahead import Walkers
from stratamq_commitlog.replica.role_change import start_role, state_at_start


def adopt(base: BaseParts) -> None:
    """The store is new, or another program wrote to it: our own state of it does not hold."""
    opening.require_adoptable(base.files, base.config)
    base.own_state.discard(base.clock.wall_ms())
    if inspection.is_empty(base.files):
        store_origin(base.files, base.clock)
    base.topics.adopt()


def start(
    base: BaseParts,
    foreign: bool,
    progress: Callable[[int, int], None] | None,
    walkers: Walkers | None,
) -> tuple[opening.OpenedLog, list[str]]:
    """Blocking: recover, read the role and the topics, begin a generation. Afterwards
    `base.states` is what the log begins with. The report of it all, in sentences.

    Raises StoreRefusedError, OSError.
    """
    config, own_state = base.config, base.own_state
    base.reserve.release_if_short()
    opened = opening.open_store(
        base.files, config, own_state, foreign, base.clock, progress, walkers
    )
    unclean = opened.unclean and opened.history_known
    started, role_report = start_role(
        base.role_file,
        base.membership,
        base.random,
        wait_for_peers=config.wait_for_peers,
        tail_at_risk=unclean and not base.sync_flush and config.take_back,
    )
    report = [*opened.report, *role_report, *base.topics.load(foreign=opened.foreign)]
    generations = opening.begin_generation(own_state, opened, base.random, started)
    assigned = base.role_file.keep(started.state, generations[-1].term)
    base.states.begin(state_at_start(started, assigned, generations, base.membership))
    base.replicas.required = base.membership.required
    return opened, report
