"""The log's answers on an append stream: which frames it takes, and why it refused some."""

from stratamq.api.v1 import commitlog_pb2
from stratamq.errors import StrataError, UnavailableError
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.message_status import SendStatus
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.rpc.status import decode_fields, error_named

_PORT_BYTES = 4


def shape_of(opened: commitlog_pb2.AppendOpened, producer: int = 0) -> FrameShape:
    """UnavailableError when the broker asks for frames that this client cannot make."""
    if opened.property_checksum_bytes not in (0, PROPERTY_CRC_BYTES):
        raise UnavailableError(
            f"the log asks for {opened.property_checksum_bytes} bytes of property checksum: "
            "this client is too old for it"
        )
    return FrameShape(
        born_host=opened.born_address + opened.born_port.to_bytes(_PORT_BYTES, "big"),
        store_host_bytes=opened.store_address_bytes + _PORT_BYTES,
        property_checksum=opened.property_checksum_bytes > 0,
        version2=opened.version2_frames,
        producer=producer,
    )


def refusal_of(
    status: SendStatus,
    result: commitlog_pb2.AppendResult
    | commitlog_pb2.AppendBatchResult
    | commitlog_pb2.AppendRefusal,
) -> StrataError | None:
    """The error that came in band; None when what was sent is stored."""
    if status.stored and not result.error_name:
        return None
    fields: dict[str, object] = decode_fields(result.error_fields) | {"status": status.name}
    if result.retry_after_ms:
        fields["retry_after_ms"] = result.retry_after_ms
    if result.beyond_window:
        fields |= {"beyond_window": True, "perhaps_stored": True}
    sentence = result.error or f"not stored: {status.name}"
    return error_named(result.error_name, sentence, fields)
