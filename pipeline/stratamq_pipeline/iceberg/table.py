"""The Iceberg table of an export: its columns, its partitions, and the catalog it stands in."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from stratamq.errors import InvalidRequestError, NotFoundError, UnavailableError
from stratamq.table.schema import TIME
from stratamq_pipeline.iceberg import synced_files

CATALOG_FILE = "catalog.db"
MAX_AGE = "history.expire.max-snapshot-age-ms"
MAX_AGE_MS = 5 * 86_400_000
"""Iceberg's default. New tables have a day: with a snapshot every half minute, metadata grows."""
_FIRST_PARTITION_ID = 1000
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Bodies are not looked for by their first bytes.
    "write.metadata.metrics.column.body": "counts",
    # A commit a minute leaves neither a manifest nor a metadata file for each.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "32",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    MAX_AGE: str(86_400_000),
}


@contextmanager
def catalog_at(out: str, catalog: str | None) -> Iterator[Catalog]:
    """The catalog by its address: `http(s)://…` of a REST catalog, a URL of SQLAlchemy's, or a name
    in pyiceberg's own configuration. None: a file of SQLite in the directory `out`.

    UnavailableError when it does not answer.
    """
    properties = {"warehouse": _location(out), **_s3_settings()}
    if "://" not in out:
        properties["py-io-impl"] = synced_files.CLASS
    if catalog is None:
        if "://" in out:
            raise InvalidRequestError(
                f"{out} is no directory, so the catalog cannot be a file in it: give --catalog"
            )
        Path(out).mkdir(exist_ok=True)
        properties |= {"type": "sql", "uri": f"sqlite:///{Path(out).absolute() / CATALOG_FILE}"}
    elif catalog.startswith(("http://", "https://")):
        properties |= {"type": "rest", "uri": catalog}
    elif "://" in catalog:
        properties |= {"type": "sql", "uri": catalog}
    name = catalog if catalog is not None and "://" not in catalog else "stratamq"
    with asking_the_catalog(), closing(load_catalog(name, **properties)) as opened:
        yield opened


@contextmanager
def existing_table(out: str, catalog: str | None, name: str) -> Iterator[Table | None]:
    """None: there is no such table. Nothing is made for the question."""
    if catalog is None and "://" not in out and not (Path(out) / CATALOG_FILE).is_file():
        _location(out)
        yield None
        return
    with catalog_at(out, catalog) as opened:
        try:
            found = opened.load_table(name)
        except NoSuchTableError:
            found = None
        yield found


@contextmanager
def asking_the_catalog() -> Iterator[None]:
    """UnavailableError in the place of the errors of each kind of catalog."""
    try:
        yield
    except (SQLAlchemyError, RESTError, RequestException, *_hive_errors()) as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        raise UnavailableError(f"the catalog does not answer as it should: {first_line}") from error


def _hive_errors() -> tuple[type[Exception], ...]:
    """Those of a Hive catalog, where pyiceberg has loaded one: its library is no dependency."""
    thrift = sys.modules.get("thrift.Thrift")
    return () if thrift is None else (thrift.TException,)


def _s3_settings() -> dict[str, str]:
    """The variables by which a tier's store is found; credentials Arrow finds there itself. A
    catalog's own settings for a table win."""
    environment = os.environ  # noqa: TID251
    names = {
        "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "s3.force-virtual-addressing": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
    }
    found = {
        setting: next((environment[name] for name in listed if environment.get(name)), None)
        for setting, listed in names.items()
    }
    return {setting: value for setting, value in found.items() if value is not None}


def open_table(catalog: Catalog, out: str, name: str, schema: pa.Schema) -> Table:
    """The table as it is, or made with these columns."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        namespace = catalog.namespace_from(name)
        catalog.create_namespace_if_not_exists(namespace)
        location = f"{_location(out)}/{name.replace('.', '/')}"
        try:
            columns = _schema(schema)
            return catalog.create_table(
                name, columns, location, _partitions(columns), properties=_PROPERTIES
            )
        except TableAlreadyExistsError:
            return catalog.load_table(name)


def _location(out: str) -> str:
    if "://" in out:
        return out.rstrip("/")
    path = Path(out).absolute()
    if not path.parent.is_dir():
        raise NotFoundError(f"there is no directory {path.parent}")
    return f"file://{path}"


def add_columns(table: Table, schema: pa.Schema) -> None:
    """Columns that a later version has are added; the rows that are there have null in them. So are
    fields of bodies. InvalidRequestError where one has another type by now."""
    wanted = _schema(schema)
    known = set(table.schema().column_names)
    missing = [field for field in wanted.fields if field.name not in known]
    if missing:
        with table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type)
    inner = [field for field in wanted.fields if isinstance(field.field_type, StructType)]
    if not inner:
        return
    try:
        with table.update_schema() as update:
            update.union_by_name(Schema(*inner))
    except (ValidationError, ValueError) as error:
        raise InvalidRequestError(
            f"bodies have other types than the table's columns: {error}. Name another table"
        ) from error


def _schema(schema: pa.Schema) -> Schema:
    """The columns, numbered in their order, what is in them behind."""
    inner = iter(range(len(schema) + 1, 1 << 31))
    fields = [
        NestedField(number, field.name, _type_of(field.type, inner), required=not field.nullable)
        for number, field in enumerate(schema, 1)
    ]
    return Schema(*fields)


def _type_of(kind: pa.DataType, inner: Iterator[int]) -> IcebergType:
    if pa.types.is_list(kind):
        element = _type_of(kind.value_type, inner)
        return ListType(next(inner), element, element_required=False)
    if pa.types.is_map(kind):
        key, value = _type_of(kind.key_type, inner), _type_of(kind.item_type, inner)
        return MapType(next(inner), key, next(inner), value, value_required=False)
    if pa.types.is_struct(kind):
        fields = [
            NestedField(next(inner), field.name, _type_of(field.type, inner), required=False)
            for field in kind
        ]
        return StructType(*fields)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    simple: dict[pa.DataType, IcebergType] = {
        pa.string(): StringType(),
        pa.binary(): BinaryType(),
        pa.bool_(): BooleanType(),
        pa.int32(): IntegerType(),
        pa.int64(): LongType(),
        pa.float32(): FloatType(),
        pa.float64(): DoubleType(),
        pa.date32(): DateType(),
        pa.timestamp("us"): TimestampType(),
        TIME: TimestamptzType(),
    }
    return simple[kind]


def _partitions(schema: Schema) -> PartitionSpec:
    topic, stored = (schema.find_field(name).field_id for name in ("topic", "storeTimestamp"))
    return PartitionSpec(
        PartitionField(topic, _FIRST_PARTITION_ID, IdentityTransform(), "topic"),
        PartitionField(stored, _FIRST_PARTITION_ID + 1, DayTransform(), "day"),
    )
