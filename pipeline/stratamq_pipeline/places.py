"""From the paths of a query to the logs that it reads.

A path is a directory, a pattern of directories or segment files, or an address. Brokers of
different names behind an address (shards) are a log each.
"""

import glob
import os
from dataclasses import replace

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.table.where import is_address
from stratamq_pipeline.options import SourceOptions


def logs_of(options: SourceOptions) -> list[SourceOptions]:
    """Options of each log; what is limited for the whole query is limited here, too.

    Addresses are asked for the names of their brokers, unless one is chosen. NotFoundError if
    nothing matches a pattern.
    """
    found: dict[tuple[str, str | None], SourceOptions] = {}
    segments: set[str] = set()
    for path in options.paths or [options.path]:
        for one in _at(options, path):
            its = str(one.path)
            if os.path.isfile(its):
                segments.add(os.path.abspath(its))
            else:
                found.setdefault((os.path.realpath(its), one.broker), one)
    logs = list(found.values())
    if segments:
        logs.append(replace(options, path=tuple(sorted(segments))))
    if len(logs) > 1 and options.named_queues:
        raise InvalidRequestError(
            f"offsets of single queues are of one log, and {len(logs)} are read here: read each "
            "with its own offsets"
        )
    return logs or [options]


def log_name(options: SourceOptions) -> str:
    """A name that stays: a broker's, or the directory."""
    path = options.path
    if not isinstance(path, str):
        raise InvalidRequestError("a stream follows a store's directory, not segment files")
    return (options.broker or path) if is_address(path) else os.path.abspath(path)


def _at(options: SourceOptions, path: str) -> list[SourceOptions]:
    if is_address(path):
        return _of_address(options, path)
    if os.path.exists(path) or not glob.has_magic(path):
        return [replace(options, path=path)]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise NotFoundError(f"nothing matches {path}")
    return [replace(options, path=one) for one in found]


def _of_address(options: SourceOptions, path: str) -> list[SourceOptions]:
    from stratamq_pipeline.broker_client import connect_to

    if not options.broker:
        with connect_to(path, options.access) as client:
            names = sorted(client.shards())
        if len(names) > 1:
            return [replace(options, path=path, broker=name) for name in names]
    return [replace(options, path=path)]
