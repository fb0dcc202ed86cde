"""A tier's storage, as it is named on a command line: a directory, or an object store's URL."""

import random
import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING

from stratamq.files.real import RealFiles

if TYPE_CHECKING:
    from stratamq.tier.driver.storage import Storage


def open_storage(target: str, *, for_writing: str = "") -> "closing[Storage]":
    """`for_writing`: the folder of the broker, which no other process of this machine may write.

    ConfigurationError for a URL that is none, and for a store without conditional writes;
    NotWritableError when another process writes.
    """
    from stratamq.tier.driver.posix import PosixStorage
    from stratamq.tier.driver.retrying import Retries, RetryingStorage

    if "://" not in target:
        directory = PosixStorage(RealFiles(target), time.sleep)
        if for_writing:
            directory.hold_writer(for_writing)
        return closing(directory)
    from stratamq.tier.driver.objects import ObjectSettings, open_objects
    from stratamq.tier.driver.probing import probe
    from stratamq.tier.driver.storage import run

    objects = open_objects(ObjectSettings(target, allow_http=True))
    if for_writing:
        run(probe(secrets.token_hex(8)), objects)
    return closing(RetryingStorage(objects, Retries(), time.sleep, random.random))
