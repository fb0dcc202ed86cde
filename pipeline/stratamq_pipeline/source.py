"""The data source `stratamq`: a log as a Spark table, in batches, as a stream, and as a sink.

    spark.read.format("stratamq").load("data").where("topic = 'flights'").groupBy("tags").count()

What runs in executors on files stands on `stratamq.formats`, `stratamq.files` and `stratamq.table`
alone; what talks to a broker is imported where it does.
"""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from stratamq.errors import InvalidRequestError
from stratamq.table.schema import SCHEMA
from stratamq_pipeline.batch import BatchReader, PushingBatchReader
from stratamq_pipeline.damage import DAMAGE_SCHEMA, DamageReader
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.pushdown import wanted_by_the_planner


class StrataMQDataSource(DataSource):
    """Options: see `stratamq_pipeline.options`; the sink's: `stratamq_pipeline.sink`."""

    @classmethod
    def name(cls) -> str:
        return "stratamq"

    def schema(self) -> StructType:
        if SourceOptions.parse(self.options).damage_table:
            return from_arrow_schema(DAMAGE_SCHEMA)
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: Any) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        if options.damage_table:
            return DamageReader(options)
        columns = tuple(schema.names)
        if options.push_down and wanted_by_the_planner():
            return PushingBatchReader(options, columns)
        return BatchReader(options, columns)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from stratamq_pipeline.stream import StreamReader

        options = SourceOptions.parse(self.options)
        if options.tier:
            raise InvalidRequestError(
                "a stream follows a log: read the tier with spark.read, and the log as a stream"
            )
        return StreamReader(options, tuple(schema.names))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        from stratamq_pipeline.sink import BatchWriter

        return BatchWriter(self.options, tuple(schema.names), overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        from stratamq_pipeline.sink import StreamWriter

        return StreamWriter(self.options, tuple(schema.names), overwrite)
