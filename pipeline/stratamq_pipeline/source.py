"""The data source `stratamq`: a log as a Spark table, in batches, as a stream, and as a sink.

    spark.read.format("stratamq").load("data").where("topic = 'flights'").groupBy("tags").count()

What runs in executors on files stands on `stratamq.formats`, `stratamq.files` and `stratamq.table`
alone; what talks to a broker is imported where it does.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from stratamq.errors import InvalidRequestError
from stratamq.table.schema import SCHEMA
from stratamq_pipeline.batch import BatchReader, PushingBatchReader
from stratamq_pipeline.damage import DAMAGE_SCHEMA, DamageReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.places import logs_of
from stratamq_pipeline.pushdown import wanted_by_the_planner
from stratamq_pipeline.table_columns import KAFKA_SCHEMA, TableColumns, spark_schema


class StrataMQDataSource(DataSource):
    """Options: see `stratamq_pipeline.options`; the sink's: `stratamq_pipeline.sink`."""

    @classmethod
    def name(cls) -> str:
        return "stratamq"

    def schema(self) -> StructType:
        options = SourceOptions.parse(self.options)
        return spark_schema(_native_schema(options), options.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        columns = _table_columns(options, schema)
        if options.damage_table:
            return DamageReader(options, columns)
        if options.push_down and wanted_by_the_planner():
            return PushingBatchReader(options, columns)
        return BatchReader(options, columns)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from stratamq_pipeline.stream import StreamReader
        from stratamq_pipeline.stream_of_logs import StreamOfLogs

        options = SourceOptions.parse(self.options)
        if options.tier:
            raise InvalidRequestError(
                "a stream follows a log: read the tier with spark.read, and the log as a stream"
            )
        logs, columns = logs_of(options), _table_columns(options, schema)
        return StreamOfLogs(logs, columns) if len(logs) > 1 else StreamReader(logs[0], columns)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        from stratamq_pipeline.sink import BatchWriter

        return BatchWriter(self.options, tuple(schema.names), overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        from stratamq_pipeline.sink import StreamWriter

        return StreamWriter(self.options, tuple(schema.names), overwrite)


def _native_schema(options: SourceOptions) -> pa.Schema:
    if options.damage_table:
        return DAMAGE_SCHEMA
    return KAFKA_SCHEMA if options.kafka else SCHEMA


def _table_columns(options: SourceOptions, schema: StructType) -> TableColumns:
    """`schema`: the user's, or ours. InvalidRequestError."""
    if options.columns is not None and set(options.columns) != set(schema.names):
        raise InvalidRequestError("the option columns and the schema name other columns: set one")
    return TableColumns.of(_native_schema(options), schema)
