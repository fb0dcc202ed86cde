"""From the paths of a query to the logs that it reads.

A path is a directory, a pattern of directories or segment files, or an address. Brokers of
different names behind an address (shards) are a log each, and so are the segment files of each
directory.
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
    found: dict[str, SourceOptions] = {}
    segments: dict[str, set[str]] = {}
    for path in options.paths or [options.path]:
        if is_address(path):
            for log, one in _of_address(options, path):
                found.setdefault(log, one)
            continue
        for match in _matches(path):
            if os.path.isfile(match):
                directory = os.path.realpath(os.path.dirname(match))
                file = os.path.join(directory, os.path.basename(match))
                segments.setdefault(directory, set()).add(file)
            else:
                found.setdefault(os.path.realpath(match), replace(options, path=match))
    of_files = (replace(options, path=tuple(sorted(files))) for files in segments.values())
    logs = [*found.values(), *of_files]
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


def _matches(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise NotFoundError(f"nothing matches {path}")
    return found


def _of_address(options: SourceOptions, path: str) -> list[tuple[str, SourceOptions]]:
    """Options of each broker, and what its log is known by: the same at all its members."""
    from stratamq_pipeline.broker_client import connect_to

    with connect_to(path, options.access, options.broker or "") as client:
        shards = client.shards()
        found = []
        for name, shard in sorted(shards.items()):
            generation = shard.log_state().generation
            its = replace(options, path=path, broker=name if len(shards) > 1 else options.broker)
            found.append((f"log {generation}" if generation else f"{path} {name}", its))
        return found
