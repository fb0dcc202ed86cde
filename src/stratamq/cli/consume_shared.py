"""`stratamq consume --shared`: a worker of a shared group, on the command line."""

from typing import Protocol

from stratamq.cli.reading_notes import note
from stratamq.client import Client, ReceivedMessage

BATCH = 32
WAIT_S = 20.0


class MessagePrinter(Protocol):
    def message(self, message: ReceivedMessage) -> None: ...

    def flush(self) -> None: ...


def consume_shared(
    client: Client, topic: str, group: str, printer: MessagePrinter, follow: bool, count: int | None
) -> None:
    """Print what is handed out, and acknowledge what standard output has taken. Ends when nothing
    is ready, unless it follows."""
    given = 0
    with client.subscribe(topic, group, batch=BATCH) as reader:
        try:
            while count is None or given < count:
                most = BATCH if count is None else min(BATCH, count - given)
                messages = reader.receive(most, wait_s=WAIT_S if follow else 0)
                if not messages and not follow:
                    break
                for message in messages:
                    printer.message(message)
                printer.flush()
                reader.ack(messages)
                given += len(messages)
        except KeyboardInterrupt:
            if not follow:
                raise
    if not given and not follow:
        note(f"no message of {topic} is ready for group {group}")
