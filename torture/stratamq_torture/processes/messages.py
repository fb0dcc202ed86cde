"""What a trial stores: every message follows from the seed, its producer and its number.

So nothing has to be remembered to know, byte for byte, what the log must hold.
"""

import hashlib
from dataclasses import dataclass

from stratamq.client import Message, ReceivedMessage

TOPICS = ("orders", "payments", "audit")
QUEUES = 3
KEYS = 40
"""Each message has one of so many keys, beside its unique one."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one trial. `largest_body_bytes` bounds their bodies."""

    seed: int
    largest_body_bytes: int = 4096

    def message(self, producer: int, number: int) -> Message:
        """The `number`-th message of a producer, with an explicit queue and a unique key."""
        digest = hashlib.sha256(f"{self.seed}/{producer}/{number}".encode()).digest()
        size = digest[3] << 1 if digest[4] >= 16 else int.from_bytes(digest[5:7])
        filler = hashlib.shake_128(digest).digest(min(size, self.largest_body_bytes))
        return Message(
            topic=TOPICS[digest[0] % len(TOPICS)],
            body=f"{producer}/{number}/".encode() + filler,
            tag=f"tag{digest[1] % 4}" if digest[1] & 1 else "",
            keys=[f"key{digest[2] % KEYS}"],
            queue_id=digest[7] % QUEUES,
            unique_key=self.unique_key(producer, number),
            flag=digest[8],
        )

    def unique_key(self, producer: int, number: int) -> str:
        return f"{self.seed}-{producer}-{number}"

    def origin(self, unique_key: str) -> tuple[int, int] | None:
        """(producer, number) of a unique key; None when it is not one of ours."""
        parts = unique_key.split("-")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            return None
        seed, producer, number = (int(part) for part in parts)
        return (producer, number) if seed == self.seed else None

    def difference(self, stored: ReceivedMessage) -> str:
        """How a stored message differs from what was sent; empty when it does not."""
        origin = self.origin(stored.unique_key)
        if origin is None:
            return f"unique key {stored.unique_key!r} was never sent"
        sent = self.message(*origin)
        pairs = {
            "topic": (sent.topic, stored.topic),
            "queue": (sent.queue_id, stored.queue_id),
            "body": (sent.body, stored.body),
            "tag": (sent.tag, stored.tag),
            "keys": (list(sent.keys), stored.keys),
            "flag": (sent.flag, stored.flag),
        }
        wrong = [name for name, (wanted, found) in pairs.items() if wanted != found]
        return f"{', '.join(wrong)} of {stored.unique_key} differ" if wrong else ""
