"""The options of an export that makes columns of bodies. Imports Arrow when it is used."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from stratamq.errors import InvalidRequestError

if TYPE_CHECKING:
    from stratamq_pipeline.bodies.schema_file import BodySchema


@dataclass(frozen=True, slots=True)
class BodyColumns:
    """How bodies become columns, if they do."""

    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Make columns of bodies in Avro (FILE.avsc) or protobuf (FILE.desc, by protoc "
            "--include_imports --descriptor_set_out): `row`, and `rowError` of bad ones, which "
            "keep their body. Needs --topic; bodies are decompressed.",
        ),
    ] = None
    message: Annotated[
        str | None,
        typer.Option(help="Protobuf: the message that bodies are, if FILE has several."),
    ] = None

    def read(self, topics: tuple[str, ...]) -> "BodySchema | None":
        """InvalidRequestError, NotFoundError and ConfigurationError before the export begins."""
        if self.schema is None:
            if self.message is not None:
                raise InvalidRequestError("--message needs --schema")
            return None
        if not topics:
            raise InvalidRequestError(
                "--schema needs --topic: bodies of other topics are of other schemas"
            )
        from stratamq_pipeline.bodies.schema_file import read_schema_file

        found = read_schema_file(self.schema, self.message)
        found.decoder()
        return found
