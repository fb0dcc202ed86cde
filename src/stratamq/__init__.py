"""StrataMQ: a durable message store, byte-compatible with Apache RocketMQ's."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from stratamq.table.scan import Scan

__all__ = ["__version__", "pending", "scan"]

__version__: str
"""The version of the installed package."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not at import: services start without reading package metadata.
    from importlib.metadata import version

    return version("stratamq")


def scan(where: Any, **options: Any) -> "Scan":
    """The log as a table of Arrow record batches; see `stratamq.table.scan.scan`.

    Needs `pip install 'stratamq[arrow]'`.
    """
    from stratamq.table import scan as table

    return table.scan(where, **options)


def pending(where: Any, kind: str, **moment: Any) -> "pa.Table":
    """What waits in a store as an Arrow table: "delayed", "transactions" or "hand-outs"; see
    `stratamq_delivery.past.pending`.

    Needs `pip install 'stratamq[arrow]'`.
    """
    from stratamq.service.installed import past_states

    table: pa.Table = past_states().pending(where, kind, **moment)
    return table
