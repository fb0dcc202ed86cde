"""A start up to the log's state: what the directory holds, which role it has, its generation."""

from collections.abc import Callable

from stratamq.store.origin import store_origin
from stratamq_commitlog.log_parts import Lasting
from stratamq_commitlog.recovery import inspection, opening
from stratamq_commitlog.recovery.walk_ahead import Walkers
from stratamq_commitlog.replica.role_change import start_role, state_at_start


def adopt(lasting: Lasting) -> None:
    """The store is new, or another program wrote to it: our own state of it does not hold."""
    opening.require_adoptable(lasting.files, lasting.config)
    lasting.own_state.discard(lasting.clock.wall_ms())
    if inspection.is_empty(lasting.files):
        store_origin(lasting.files, lasting.clock)
    lasting.topics.adopt()


def start(
    lasting: Lasting,
    foreign: bool,
    progress: Callable[[int, int], None] | None,
    walkers: Walkers | None,
) -> tuple[opening.OpenedLog, list[str]]:
    """Blocking: recover, read the role and the topics, begin a generation. Afterwards
    `lasting.states` is what the log begins with. The report of it all, in sentences.

    Raises StoreRefusedError, OSError.
    """
    config, own_state = lasting.config, lasting.own_state
    lasting.reserve.release_if_short()
    opened = opening.open_store(
        lasting.files, config, own_state, foreign, lasting.clock, progress, walkers
    )
    unclean = opened.unclean and opened.history_known
    started, role_report = start_role(
        lasting.role_file,
        lasting.membership,
        lasting.random,
        wait_for_peers=config.wait_for_peers,
        tail_at_risk=unclean and not lasting.sync_flush and config.take_back,
    )
    report = [*opened.report, *role_report, *lasting.topics.load(foreign=opened.foreign)]
    generations = opening.begin_generation(own_state, opened, lasting.random, started)
    assigned = lasting.role_file.keep(started.state, generations[-1].term)
    lasting.states.begin(state_at_start(started, assigned, generations, lasting.membership))
    lasting.replicas.required = lasting.membership.required
    return opened, report
