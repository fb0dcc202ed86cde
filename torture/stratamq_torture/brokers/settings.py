"""The settings of simulated brokers: everything small, so that everything happens often."""

import random
from dataclasses import dataclass, replace

from stratamq_commitlog.config import CommitLogConfig

from stratamq.formats.broker_role import Role
from stratamq_torture.simulated.settings import ASYNC, SYNC, standard


@dataclass(frozen=True, slots=True)
class Settings:
    """`required`: so many slaves acknowledge before PUT_OK. `log.role` is set for each broker."""

    brokers: int
    required: int
    sync_master: bool
    hold: bool
    sync_flush: bool
    misses: float
    """The chance that a question, or its answer, does not arrive."""
    log: CommitLogConfig

    @property
    def role(self) -> Role:
        """Return the role of the current master."""
        return Role.SYNC_MASTER if self.sync_master else Role.ASYNC_MASTER


def chosen(chance: random.Random) -> Settings:
    """Brokers of a seed's choice."""
    brokers = chance.choice((2, 3, 3))
    required = chance.randint(1, brokers - 1)
    sync_master = chance.random() < 0.8
    hold = chance.random() < 0.8
    sync_flush = chance.random() < 0.6
    log = standard(
        flush=SYNC if sync_flush else ASYNC,
        segment_bytes=chance.choice((2048, 4096, 8192)),
        property_checksum=chance.random() < 0.5,
        flush_interval_ms=chance.choice((50, 500, 5_000)),
        snapshot_interval_ms=chance.choice((100, 2_000, 20_000)),
        pass_messages=chance.choice((1, 4, 64)),
    ).log
    log = replace(
        log,
        followers=(),
        required_replicas=required,
        hold_without_slave=hold,
        slave_timeout_ms=chance.choice((300, 3_000)),
        wait_for_peers=True,
        take_back=False,  # a promoted slave has it; tests/ha/test_taking_back.py covers it
    )
    misses = chance.choice((0.0, 0.1, 0.4))
    return Settings(brokers, required, sync_master, hold, sync_flush, misses, log)
