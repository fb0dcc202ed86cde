"""What the store can hold and no service delivers yet: delayed and half messages.

A producer of ours that sends one is refused. RocketMQ's frames of them come in as they are, through
`AppendRaw`, replication and adopted directories.
"""

from collections.abc import Collection

from stratamq.errors import InvalidRequestError
from stratamq.formats.properties import DELAY


def refuse_undelivered(delay_level: int, half: bool, property_names: Collection[str]) -> None:
    """InvalidRequestError for a message that would be stored and never delivered."""
    if delay_level > 0:
        raise InvalidRequestError(
            f"delay_level {delay_level}: delayed messages are not delivered yet; send the message "
            "without a delay level when it is due"
        )
    if DELAY in property_names:
        raise InvalidRequestError(
            f"property {DELAY}: delayed messages are not delivered yet; send the message without "
            "it when it is due"
        )
    if half:
        raise InvalidRequestError(
            "half messages are neither committed nor rolled back yet; send the message when its "
            "transaction has ended"
        )
