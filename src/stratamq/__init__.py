"""StrataMQ: a durable message store, byte-compatible with Apache RocketMQ's."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stratamq.table.scan import Scan

__all__ = ["scan"]


def scan(where: Any, **options: Any) -> "Scan":
    """The log as a table of Arrow record batches; see `stratamq.table.scan.scan`.

    Needs `pip install 'stratamq[arrow]'`.
    """
    from stratamq.table import scan as table

    return table.scan(where, **options)
