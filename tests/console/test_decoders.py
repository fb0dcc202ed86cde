"""Decoders that users add: protobuf, Avro, msgpack, and what is said where one does not work."""

import importlib.util
import json

import pytest
from google.protobuf import descriptor_pb2
from stratamq_console.decoders import BodyDecoders, parse_decoder

from stratamq.api.v1 import common_pb2
from stratamq.errors import ConfigurationError


@pytest.fixture
def descriptors(tmp_path):
    """A descriptor set with `stratamq.api.v1.QueueOffset`."""
    files = descriptor_pb2.FileDescriptorSet()
    common_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    path = tmp_path / "common.pb"
    path.write_bytes(files.SerializeToString())
    return path


def test_protobuf_is_decoded_by_a_descriptor_set(descriptors):
    decoders = BodyDecoders([f"orders*=protobuf:{descriptors}:stratamq.api.v1.QueueOffset"])
    body = common_pb2.QueueOffset(topic="t", queue_id=3).SerializeToString()
    found = decoders.decode("orders-eu", body)
    assert found.value == {"topic": "t", "queue_id": 3} and not found.problem
    assert decoders.decode("others", body) is None
    assert "does not fit" in decoders.decode("orders-eu", b"\xff\xff").problem


def test_a_file_that_is_missing_is_said_so(tmp_path):
    found = BodyDecoders([f"*=protobuf:{tmp_path / 'none.pb'}:a.B"]).decode("t", b"")
    assert "cannot be read" in found.problem


@pytest.mark.parametrize(
    "text",
    ["", "orders", "=msgpack", "t=xml", "t=protobuf", "t=protobuf:file", "t=avro", "t=avro:"],
)
def test_a_setting_that_is_no_decoder_is_refused(text):
    with pytest.raises(ConfigurationError) as refused:
        parse_decoder(text)
    assert refused.value.faults == [str(refused.value)], "one sentence"
    assert repr(text) in str(refused.value)


def test_the_first_that_fits_is_used():
    decoders = BodyDecoders(["a*=msgpack", "*=avro:file"])
    assert decoders.of("ab").kind == "msgpack" and decoders.of("b").kind == "avro"


@pytest.mark.parametrize(("kind", "package"), [("avro", "fastavro"), ("msgpack", "msgpack")])
def test_with_the_package_it_decodes_and_without_it_names_it(kind, package, tmp_path):
    schema = tmp_path / "pair.avsc"
    record = {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "int"}]}
    schema.write_text(json.dumps(record))
    bodies = {"avro": b"\x02", "msgpack": b"\x81\xa1a\x01"}
    setting = f"*=avro:{schema}" if kind == "avro" else "*=msgpack"
    found = BodyDecoders([setting]).decode("t", bodies[kind])
    if importlib.util.find_spec(package) is None:
        assert f"package {package} is missing" in found.problem
    else:
        assert found.value == {"a": 1}
        assert BodyDecoders([setting]).decode("t", b"\xc1").problem
