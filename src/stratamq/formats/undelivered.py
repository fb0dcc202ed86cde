"""What the store can hold and no service delivers yet: half messages.

A producer of ours that sends one is refused. RocketMQ's frames of them come in as they are, through
`AppendRaw`, replication and adopted directories.
"""

from stratamq.errors import InvalidRequestError


def refuse_half() -> None:
    """InvalidRequestError: the message would be stored and never delivered."""
    raise InvalidRequestError(
        "half messages are neither committed nor rolled back yet; send the message when its "
        "transaction has ended"
    )
