"""Bodies become columns by a schema file; bad ones stand aside with their offset."""

import io
import json
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec

import fastavro
import pyarrow as pa
import pyarrow.dataset
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st
from stratamq_pipeline.bodies.command import BodyColumns
from stratamq_pipeline.bodies.rows import BodyRows
from stratamq_pipeline.bodies.schema_file import BodyFormat, BodySchema, read_schema_file
from stratamq_pipeline.export.job import ExportOptions, run_export
from stratamq_pipeline.iceberg.position import ExportSelection

import stratamq
from stratamq.errors import ConfigurationError, InvalidRequestError, NotFoundError
from tests.pipeline.iceberg_tables import export, rows, table_of
from tests.pipeline.job_stores import HERE
from tests.pipeline.written_log import WrittenLog

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
        {"name": "first", "type": ["null", "Item"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
ROW = {
    "id": 7,
    "note": None,
    "items": [{"sku": "a"}, {"sku": "b"}],
    "first": {"sku": "a"},
    "counts": {"a": 1},
    "kind": "OLD",
    "at": datetime(2026, 11, 28, 23, tzinfo=UTC),
    "day": date(2026, 11, 28),
    "clock": 5,
    "price": Decimal("9.50"),
}
READ_ROW = {**ROW, "counts": [("a", 1)]}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NEW = 0; OLD = 1; }
message Item { string sku = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Item items = 3;
  map<string, int32> counts = 4;
  Kind kind = 5;
  google.protobuf.Timestamp at = 6;
  uint64 large = 7;
  bytes raw = 8;
  oneof which { int32 number = 9; string word = 10; }
}
"""


def avro(row=ROW, schema=ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def schema_file(directory, schema=ORDER):
    path = directory / "order.avsc"
    path.write_text(json.dumps(schema))
    return str(path)


def descriptors(directory, source=PROTO, *flags: str):
    """Compiled as a user does."""
    (directory / "order.proto").write_text(source)
    out = directory / "order.desc"
    well_known = f"-I{find_spec('grpc_tools').submodule_search_locations[0]}/_proto"
    arguments = [*(flags or ("--include_imports",)), f"--descriptor_set_out={out}", "order.proto"]
    assert protoc.main(["protoc", f"-I{directory}", well_known, *arguments]) == 0
    return str(out)


def order_class(file):
    pool = DescriptorPool()
    with open(file, "rb") as content:
        for one in FileDescriptorSet.FromString(content.read()).file:
            pool.Add(one)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def one_row(decoder, body: bytes):
    return pa.array([decoder.decode(body)], decoder.type).to_pylist()[0]


def test_a_record_of_avros_has_the_columns_of_its_schema(tmp_path):
    decoder = read_schema_file(schema_file(tmp_path)).decoder()
    assert decoder.name == "shop.Order"
    assert one_row(decoder, avro()) == READ_ROW


def test_a_message_of_protobufs_has_the_columns_of_its_descriptor(tmp_path):
    file = descriptors(tmp_path)
    decoder = read_schema_file(file, "Order").decoder()
    kind = order_class(file)
    order = kind(id=7, items=[{"sku": "a"}], counts={"a": 1}, kind=1, large=(1 << 64) - 1)
    order.at.FromDatetime(ROW["at"])
    order.word = "w"
    expected = {
        "id": 7,
        "note": None,
        "items": [{"sku": "a"}],
        "counts": [("a", 1)],
        "kind": "OLD",
        "at": ROW["at"],
        "large": Decimal((1 << 64) - 1),
        "raw": b"",
        "number": None,
        "word": "w",
    }
    assert one_row(decoder, order.SerializeToString()) == expected
    assert one_row(decoder, kind(kind=9).SerializeToString())["kind"] == "9"
    assert decoder.name == "shop.Order"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array", "items": "null"}, r"Order\.x\[\] cannot be a column: null alone"),
        (
            [{"type": "array", "items": ["null", "Order"]}, "int"],
            r"Order\.x\[\] cannot be a column: Order within itself",
        ),
        (
            [
                {"type": "fixed", "name": "a.F", "size": 1},
                {"type": "fixed", "name": "b.F", "size": 2},
            ],
            r"Order\.x cannot be a column: a union of a\.F and b\.F",
        ),
        (["null", "Order"], r"Order\.x cannot be a column: Order within itself"),
        ({"type": "record", "name": "E", "fields": []}, "a record without fields"),
        ({"type": "fixed", "name": "F", "size": 0}, "fixed of no bytes"),
        ("Nothing", "is no schema of Avro's"),
    ],
)
def test_what_has_no_column_is_named_with_its_file(tmp_path, schema, message):
    order = {"type": "record", "name": "Order", "fields": [{"name": "x", "type": schema}]}
    file = schema_file(tmp_path, order)
    with pytest.raises(InvalidRequestError, match=rf"order\.avsc.*{message}"):
        read_schema_file(file).decoder()


PART = {
    "type": "record",
    "name": "Part",
    "fields": [{"name": "n", "type": ["null", "int", "long"]}],
}
UNION = {
    "type": "record",
    "name": "Mixed",
    "namespace": "shop",
    "fields": [
        {
            "name": "x",
            "type": [
                "null",
                "int",
                {"type": "long", "logicalType": "timestamp-millis"},
                "float",
                "double",
                "boolean",
                "string",
                {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                {"type": "fixed", "name": "F", "size": 2},
                {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]},
                PART,
                {"type": "array", "items": ["string", "boolean"]},
                {"type": "map", "values": ["null", "Part"]},
            ],
        },
        {"name": "only", "type": ["Part", "null"]},
    ],
}


@pytest.mark.parametrize(
    ("written", "member", "read"),
    [
        (7, "int", 7),
        (ROW["at"], "long", ROW["at"]),
        (1.5, "double", 1.5),
        (True, "boolean", True),
        ("s", "string", "s"),
        (Decimal("1.25"), "bytes", Decimal("1.25")),
        (("shop.F", b"ab"), "F", b"ab"),
        (("shop.Kind", "OLD"), "Kind", "OLD"),
        (("shop.Part", {"n": 1 << 40}), "Part", {"n": 1 << 40}),
        (["s", True], "array", [{"string": "s"}, {"boolean": True}]),
        ({"a": {"n": 1}, "b": None}, "map", [("a", {"n": 1}), ("b", None)]),
    ],
)
def test_a_union_of_several_types_has_a_column_for_each(tmp_path, written, member, read):
    decoder = read_schema_file(schema_file(tmp_path, UNION)).decoder()
    row = one_row(decoder, avro({"x": written, "only": {"n": 5}}, UNION))
    assert row["only"] == {"n": 5}
    if member == "array":
        read = [{f"member_{name}": one.get(name) for name in ("string", "boolean")} for one in read]
    assert {name: one for name, one in row["x"].items() if one is not None} == {
        f"member_{member}": read
    }
    assert one_row(decoder, avro({"x": None, "only": None}, UNION)) == {"x": None, "only": None}


def test_a_wrong_file_is_named_and_so_is_what_to_do(tmp_path):
    def refused(name, message=None, content=b""):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InvalidRequestError, match=name) as raised:
            read_schema_file(str(path), message).decoder()
        return raised.value.message

    with pytest.raises(NotFoundError, match=r"there is no schema file .*none\.avsc"):
        read_schema_file(str(tmp_path / "none.avsc"))
    assert "protoc --include_imports" in refused("a.proto")
    assert "a schema file is called" in refused("a.json")
    assert "no schema of Avro's" in refused("a.avsc", content=b"{")
    assert "if they are a record" in refused("b.avsc", content=b'"int"')
    assert "--message is for protobuf" in refused("c.avsc", "Order", b"{}")
    assert "no FileDescriptorSet" in refused("a.desc", content=b"{")
    assert "has no message" in refused("b.desc")
    (tmp_path / "d.avsc").mkdir()
    with pytest.raises(InvalidRequestError, match=r"d\.avsc cannot be read: Is a directory"):
        read_schema_file(str(tmp_path / "d.avsc"))


def test_a_message_is_chosen_by_its_name(tmp_path):
    file = descriptors(tmp_path)
    with pytest.raises(InvalidRequestError, match=r"has the messages shop\.Item, shop\.Order"):
        read_schema_file(file).decoder()
    with pytest.raises(InvalidRequestError, match=r"did you mean shop\.Order\?"):
        read_schema_file(file, "shop.Ordr").decoder()
    alone = descriptors(tmp_path, 'syntax = "proto3"; message A { int32 x = 1; }')
    assert read_schema_file(alone).decoder().name == "A"
    within = descriptors(tmp_path, 'syntax = "proto3"; message A { A a = 1; }')
    with pytest.raises(InvalidRequestError, match=r"A\.a cannot be a column: A within itself"):
        read_schema_file(within).decoder()
    partial = descriptors(tmp_path, PROTO, "--retain_options")
    with pytest.raises(InvalidRequestError, match=r"not complete.*--include_imports"):
        read_schema_file(partial, "Order").decoder()


def test_options_that_need_each_other_say_so(tmp_path, monkeypatch):
    file = schema_file(tmp_path)
    assert BodyColumns().read(()) is None
    assert BodyColumns(file).read(("t",)).format is BodyFormat.AVRO
    with pytest.raises(InvalidRequestError, match="--schema needs --topic"):
        BodyColumns(file).read(())
    with pytest.raises(InvalidRequestError, match="--message needs --schema"):
        BodyColumns(None, "Order").read(("t",))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'stratamq\[avro\]'"):
        BodyColumns(file).read(("t",))


ANY_BYTES = st.binary(max_size=60)
AVRO_SCHEMA = BodySchema(BodyFormat.AVRO, "order.avsc", json.dumps(ORDER).encode())


@given(body=ANY_BYTES, cut=st.integers(0, 60))
def test_any_bytes_are_a_row_or_a_bad_one(body, cut):
    """Errors of the library are errors of a row; nothing else comes out."""
    decoder = AVRO_SCHEMA.decoder()
    for one in (body, avro()[:cut], avro() + body):
        with suppress(ValueError):
            assert decoder.decode(one)["kind"] in ("NEW", "OLD")
    assert decoder.decode(avro())["id"] == 7


def test_bad_rows_keep_body_and_place_and_good_ones_their_columns_alone(tmp_path):
    late = {**ROW, "price": Decimal("12345678.90")}
    schema = json.loads(json.dumps(ORDER).replace('"precision": 9', '"precision": 12'))
    bodies = [avro(), b"no order", avro() + b"x", avro(late, schema), b"", avro({**ROW, "id": 8})]
    log = WrittenLog(tmp_path / "store")
    put(log, *bodies)
    (batch,) = stratamq.scan(log.root).to_arrow().combine_chunks().to_batches()
    made = BodyRows(AVRO_SCHEMA)
    assert made.name == "avro shop.Order"
    found = made.rows(batch).to_pylist()
    good = {one["queueOffset"]: one["row"]["id"] for one in found if one["rowError"] is None}
    assert good == {0: 7, 5: 8}
    bad = {one["queueOffset"]: one["body"] for one in found if one["rowError"] is not None}
    assert bad == {number: bodies[number] for number in (1, 2, 3, 4)}
    assert all((one["row"] is None) == (one["rowError"] is not None) for one in found)
    assert all((one["body"] is None) == (one["rowError"] is None) for one in found)
    assert "1 bytes follow" in found[2]["rowError"]


# --- Iceberg ---


def without_body(row):
    return {name: value for name, value in row.items() if name not in ("body", "row", "rowError")}


def put(log, *bodies):
    for body in bodies:
        log.put("t", 0, body)


def test_a_table_has_bodies_as_columns_and_takes_new_fields(tmp_path):
    log, out = WrittenLog(tmp_path / "store"), tmp_path / "out"
    put(log, avro(), b"bad", avro({**ROW, "id": 8}))
    chosen = ExportSelection(topics=("t",))

    def run(schema):
        export(
            log.root, out, selection=chosen, bodies=read_schema_file(schema_file(tmp_path, schema))
        )

    run(ORDER)
    first = rows(out)
    assert [one["row"] and one["row"]["id"] for one in first] == [7, None, 8]
    assert first[0]["row"] == READ_ROW
    assert [one["body"] for one in first] == [None, b"bad", None]
    scanned = stratamq.scan(log.root).to_arrow().to_pylist()
    assert [without_body(one) for one in first] == [without_body(one) for one in scanned]

    later = json.loads(json.dumps(ORDER))
    later["fields"].append({"name": "paid", "type": "boolean"})
    put(log, avro({**ROW, "id": 9, "paid": True}, later))
    run(later)
    assert [(one["row"] or {}).get("paid") for one in rows(out)] == [None, None, None, True]
    assert table_of(out).scan(row_filter="row.id = 9").to_arrow().num_rows == 1
    bad = table_of(out).scan(row_filter="rowError is not null", selected_fields=("queueOffset",))
    assert bad.to_arrow()["queueOffset"].to_pylist() == [1]

    # With the former schema again: the table keeps its column.
    put(log, avro({**ROW, "id": 10}))
    run(ORDER)
    assert [(one["row"] or {}).get("id") for one in rows(out)] == [7, None, 8, 9, 10]


def test_a_type_that_is_added_to_a_union_adds_a_column_wherever_it_stands(tmp_path):
    log, out = WrittenLog(tmp_path / "store"), tmp_path / "out"
    chosen = ExportSelection(topics=("t",))
    for types, value in ((["int", "string"], 7), (["boolean", "string", "int"], True)):
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": types}]}
        put(log, avro({"x": value}, schema))
        bodies = read_schema_file(schema_file(tmp_path, schema))
        export(log.root, out, selection=chosen, bodies=bodies)
    assert [row["row"]["x"] for row in rows(out)] == [
        {"member_int": 7, "member_string": None, "member_boolean": None},
        {"member_int": None, "member_string": None, "member_boolean": True},
    ]


def test_a_table_refuses_bodies_of_another_schema_and_stays_as_it_is(tmp_path):
    log, out = WrittenLog(tmp_path / "store"), tmp_path / "out"
    put(log, avro())
    chosen = ExportSelection(topics=("t",))
    given = read_schema_file(schema_file(tmp_path))
    export(log.root, out, selection=chosen, bodies=given)
    before = table_of(out).metadata

    other = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    changed = read_schema_file(schema_file(tmp_path, other))
    with pytest.raises(InvalidRequestError, match="bodies have other types"):
        export(log.root, out, selection=chosen, bodies=changed)
    renamed = read_schema_file(schema_file(tmp_path, {**ORDER, "name": "Bill"}))
    for bodies in (None, renamed):
        with pytest.raises(InvalidRequestError, match=r"was begun with .*avro shop\.Order"):
            export(log.root, out, selection=chosen, bodies=bodies)
    assert table_of(out).metadata == before


# --- Parquet ---


def test_parquet_files_have_bodies_as_columns(spark, tmp_path):
    file = descriptors(tmp_path)
    kind = order_class(file)
    log, out = WrittenLog(tmp_path / "store"), tmp_path / "out"
    put(log, kind(id=7, note="n").SerializeToString(), b"\xff", kind(id=8).SerializeToString())
    log.put("other", 0, b"not read")
    bodies = read_schema_file(file, "shop.Order")
    options = ExportOptions(str(log.root), str(out), ("t",), bodies=bodies)
    assert run_export(options, HERE).facts["messages"] == 3
    found = spark.read.parquet(str(out)).orderBy("queueOffset")
    told = found.selectExpr(
        "queueOffset", "row.id", "row.note", "body", "rowError IS NULL"
    ).collect()
    assert [tuple(one) for one in told] == [
        (0, 7, "n", None, True),
        (1, None, None, bytearray(b"\xff"), False),
        (2, 8, None, None, True),
    ]
    with pytest.raises(InvalidRequestError, match=r"protobuf shop\.Order.*this run has"):
        run_export(ExportOptions(str(log.root), str(out), ("t",)), HERE)
