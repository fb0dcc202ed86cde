"""What `produce` reads: lines, JSON objects or a whole file, each with the number of its line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import BinaryIO

from stratamq.cli.message_documents import message_of
from stratamq.client import Message
from stratamq.client.intake import check_body
from stratamq.errors import InvalidRequestError

_ESCAPED = 6
"""A byte of a body is at most so many of a JSON text."""
_FIELDS_BYTES = 1 << 20
"""More than the other fields of a message ever need."""
_PIECE_BYTES = 1 << 20


class Format(StrEnum):
    LINES = "lines"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Given:
    """One message of the input. `taken_bytes`: what was read so far."""

    line: int
    message: Message
    taken_bytes: int


class MessageInput:
    """Messages of a stream, with no more than one of them in memory. `defaults` has the fields that
    every message gets. `line` is the one that is read, or was read last."""

    def __init__(
        self,
        source: BinaryIO,
        input_format: Format,
        defaults: Message,
        *,
        from_line: int = 1,
        whole: bool = False,
    ) -> None:
        self._source = source
        self._format = input_format
        self._defaults = defaults
        self._from_line = from_line
        self.whole = whole
        self._taken_bytes = 0
        self.line = 0

    def messages(self, largest_body_bytes: int) -> Iterator[Given]:
        """InvalidRequestError, which names the line, for one that is no message, or has a body of
        more bytes."""
        if self.whole:
            yield self._whole_input(largest_body_bytes)
            return
        longest = largest_body_bytes
        if self._format is Format.JSON:
            longest = _ESCAPED * largest_body_bytes + _FIELDS_BYTES
        while (found := self._next_line(longest)) is not None:
            raw, size = found
            if self.line < self._from_line:
                continue
            try:
                if size > len(raw):
                    raise InvalidRequestError(
                        f"it has {size:,} bytes, and a body has at most {largest_body_bytes:,} "
                        "(commitlog.max_message_bytes)"
                    )
                message = self._message(raw, largest_body_bytes)
            except (ValueError, RecursionError, InvalidRequestError) as error:
                raise InvalidRequestError(f"line {self.line}: {error}") from error
            if message is not None:
                yield Given(self.line, message, self._taken_bytes)
        if self.line < self._from_line - 1:
            raise InvalidRequestError(
                f"--from-line {self._from_line}: the input has {self.line} lines"
            )

    def _message(self, raw: bytes, largest_body_bytes: int) -> Message | None:
        """None for an empty line between JSON objects."""
        body = raw.removesuffix(b"\n")
        if self._format is Format.LINES:
            message = replace(self._defaults, body=body)
        elif body.strip():
            message = message_of(json.loads(body), self._defaults)
        else:
            return None
        check_body(len(message.body), largest_body_bytes)
        return message

    def _next_line(self, longest: int) -> tuple[bytes, int] | None:
        """A line with its end, and its bytes; None behind the last one. Of a line of more than
        `longest` bytes only the beginning is kept."""
        most = longest + len(b"\r\n")
        raw = self._source.readline(most)
        if not raw:
            return None
        self.line += 1
        piece, size = raw, len(raw)
        cut = size == most
        while cut and piece and not piece.endswith(b"\n"):
            piece = self._source.readline(_PIECE_BYTES)
            size += len(piece)
        self._taken_bytes += size
        return raw, size

    def _whole_input(self, largest_body_bytes: int) -> Given:
        self.line = 1
        body = self._source.read(largest_body_bytes + 1)
        if len(body) > largest_body_bytes:
            size = len(body)
            while piece := self._source.read(_PIECE_BYTES):
                size += len(piece)
            check_body(size, largest_body_bytes)
        return Given(1, replace(self._defaults, body=body), len(body))
