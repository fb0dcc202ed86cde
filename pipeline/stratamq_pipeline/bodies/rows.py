"""Batches of messages get their bodies as columns: `row` and, of bad ones, `rowError`.

A body that is one of the schema becomes `row`, and is not kept beside it. One that is none keeps
`body`, and `rowError` says why: a bad row stands aside with topic, queue and offset, and stops
nothing.
"""

from typing import Any

import pyarrow as pa

from stratamq.table.schema import COLUMNS, SCHEMA
from stratamq_pipeline.bodies.schema_file import BodySchema

ROW = "row"
ROW_ERROR = "rowError"


class BodyRows:
    """Errors as of `BodySchema.decoder`."""

    def __init__(self, given: BodySchema) -> None:
        self._decoder = given.decoder()
        self.name = f"{given.format} {self._decoder.name}"
        """By which the runs of one export must agree."""
        body = SCHEMA.get_field_index("body")
        self.schema: pa.Schema = (
            SCHEMA.set(body, SCHEMA.field(body).with_nullable(True))
            .append(pa.field(ROW, self._decoder.type))
            .append(pa.field(ROW_ERROR, pa.string()))
        )

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """From all columns of messages, with decompressed bodies."""
        bodies = batch.column("body").to_pylist()
        found: list[dict[str, Any] | None] = []
        errors: list[str | None] = []
        for body in bodies:
            row, error = self._decoded(body)
            found.append(row)
            errors.append(error)
        try:
            rows = pa.array(found, self._decoder.type)
        except (pa.ArrowException, OverflowError):
            rows = self._one_by_one(found, errors)
        kept = [
            body if error is not None else None for body, error in zip(bodies, errors, strict=True)
        ]
        columns = {name: batch.column(name) for name in COLUMNS}
        columns |= {
            "body": pa.array(kept, pa.binary()),
            ROW: rows,
            ROW_ERROR: pa.array(errors, pa.string()),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )

    def _decoded(self, body: bytes) -> tuple[dict[str, Any] | None, str | None]:
        try:
            return self._decoder.decode(body), None
        except ValueError as error:
            return None, str(error)

    def _one_by_one(self, found: list[dict[str, Any] | None], errors: list[str | None]) -> pa.Array:
        """The same, where the value of a row does not fit its type: that one is bad."""
        kind = self._decoder.type
        arrays = []
        for number, row in enumerate(found):
            try:
                arrays.append(pa.array([row], kind))
            except (pa.ArrowException, OverflowError) as error:
                errors[number] = f"a value does not fit: {error}"
                arrays.append(pa.nulls(1, kind))
        return pa.concat_arrays(arrays)
