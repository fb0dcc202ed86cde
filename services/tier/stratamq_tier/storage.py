"""The storage that the settings name, as the service uses it: it counts, and asks again."""

import logging
import os
import random
import time
from functools import partial

from stratamq.errors import ConfigurationError
from stratamq.files.port import Clock
from stratamq.files.real import RealFiles
from stratamq.tier.driver.counting import FREE, CountingStorage
from stratamq.tier.driver.objects import ObjectSettings, open_objects
from stratamq.tier.driver.posix import PosixStorage
from stratamq.tier.driver.retrying import Retries, RetryingStorage
from stratamq.tier.driver.running import Runner
from stratamq.tier.driver.same_directory import SameDirectory, identity_of
from stratamq.tier.driver.storage import Storage
from stratamq_tier.config import TierConfig
from stratamq_tier.status import Requests

log = logging.getLogger(__name__)

STOP_S = 2.0


class OpenedStorage:
    """`storage` is given to runners; closed once, at the end."""

    def __init__(self, config: TierConfig, clock: Clock) -> None:
        """ConfigurationError for what can be seen without a request."""
        below: Storage
        prices = FREE
        if config.is_objects:
            options = {"endpoint": config.endpoint} if config.endpoint else {}
            settings = ObjectSettings(
                config.target,
                options,
                timeout_ms=config.storage_timeout_ms,
                allow_http=config.allow_http,
            )
            below, prices = open_objects(settings), config.prices
        else:
            if not config.mounted:
                _make_directory(config.target)
            elif not os.path.isdir(config.target):
                raise ConfigurationError([f"tier.target: there is no directory {config.target}"])
            below = SameDirectory(
                PosixStorage(RealFiles(config.target), time.sleep),
                config.target,
                partial(identity_of, config.target),
            )
        self._counting = CountingStorage(below, clock.monotonic_ns, prices)
        self._retrying = RetryingStorage(self._counting, Retries(), time.sleep, random.random)
        self.storage: Storage = self._retrying

    def requests(self) -> tuple[Requests, ...]:
        return tuple(
            Requests(
                kind,
                counts.requests,
                counts.bytes_up + counts.bytes_down,
                counts.errors,
                counts.requests * self._counting.prices.of(kind),
            )
            for kind, counts in self._counting.counts().items()
        )

    def close(self, *runners: Runner) -> bool:
        """Ask no more for what is not answered, and close `runners`. False: calls are under way
        after STOP_S; they and the storage are left. One that is broken off leaves what a crash
        leaves."""
        self._retrying.give_up()
        ended = all(runner.close(STOP_S) for runner in runners)
        if ended:
            self.storage.close()
        else:
            log.warning("storage not responding, pending requests abandoned")
        return ended


def _make_directory(target: str) -> None:
    try:
        os.makedirs(target, exist_ok=True)
        writable = os.access(target, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigurationError(
            [f"tier.target: {target} cannot be made a directory: {error.strerror}"]
        ) from error
    if not writable:
        raise ConfigurationError([f"tier.target: {target} is not writable for this process"])
