"""A tier's storage by its name: a directory, or an object store's URL."""

import random
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING

from stratamq.errors import ConfigurationError
from stratamq.files.real import RealFiles

if TYPE_CHECKING:
    from stratamq.tier.driver.counting import CountingStorage
    from stratamq.tier.driver.storage import Storage


def open_storage(target: str, *, for_writing: str = "") -> "closing[Storage]":
    """`for_writing`: the folder of the broker, which no other process of this machine may write.

    ConfigurationError for a URL that is none, and for a store without conditional writes;
    NotWritableError when another process writes.
    """
    return open_counted(target, for_writing=for_writing)[0]


def open_counted(
    target: str, *, for_writing: str = ""
) -> "tuple[closing[Storage], CountingStorage]":
    """Like `open_storage`; also returns the storage that counts requests."""
    from stratamq.tier.driver.counting import FREE, CountingStorage, Prices
    from stratamq.tier.driver.posix import PosixStorage
    from stratamq.tier.driver.retrying import Retries, RetryingStorage

    if not target:
        raise ConfigurationError(["the tier's directory or URL is empty"])
    if "://" not in target:
        directory = PosixStorage(RealFiles(target), time.sleep)
        if for_writing:
            directory.hold_writer(for_writing)
        counted = CountingStorage(directory, time.monotonic_ns, FREE)
        return closing(counted), counted
    from stratamq.tier.driver.objects import ObjectSettings, open_objects
    from stratamq.tier.driver.probing import probe
    from stratamq.tier.driver.storage import run

    objects = open_objects(ObjectSettings(target, allow_http=True))
    counted = CountingStorage(objects, time.monotonic_ns, Prices())
    if for_writing:
        run(probe(secrets.token_hex(8)), counted)
    return closing(RetryingStorage(counted, Retries(), time.sleep, random.random)), counted
