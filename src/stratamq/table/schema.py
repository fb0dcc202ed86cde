"""The columns of the log as a table. Needs pyarrow (`stratamq[arrow]`).

    topic                      string        as stored; a half message's is the half topic
    queueId                    int32
    queueOffset                int64         ordinal in the queue; 0 for what stands in none
    physicalOffset             int64         bytes from the start of the log: its order; -1: a tier
    msgId                      string        offset message id, 32 or 56 hex digits (spec 3.3)
    keys                       list<string>  the words of KEYS
    tags                       string        null without TAGS
    body                       binary        as stored, or decompressed when asked for
    properties                 map<string, string>
    flag, sysFlag              int32
    bornTimestamp              timestamp     milliseconds, UTC: the producer's clock
    bornHost                   string        address:port, an IPv6 address in brackets
    storeTimestamp             timestamp     milliseconds, UTC: never goes back within a log
    storeHost                  string
    reconsumeTimes             int32
    preparedTransactionOffset  int64
    bodyCrc                    int32         CRC-32 of the stored body, 31 bits
    size                       int32         bytes of the whole frame

Timestamps have Arrow's unit µs, because that is what Spark takes; a time too far away for it, which
a producer's clock can have, becomes the last one it can express.
"""

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("queueOffset", pa.int64(), nullable=False),
        pa.field("physicalOffset", pa.int64(), nullable=False),
        pa.field("msgId", pa.string(), nullable=False),
        pa.field("keys", pa.list_(pa.string()), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sysFlag", pa.int32(), nullable=False),
        pa.field("bornTimestamp", TIME, nullable=False),
        pa.field("bornHost", pa.string(), nullable=False),
        pa.field("storeTimestamp", TIME, nullable=False),
        pa.field("storeHost", pa.string(), nullable=False),
        pa.field("reconsumeTimes", pa.int32(), nullable=False),
        pa.field("preparedTransactionOffset", pa.int64(), nullable=False),
        pa.field("bodyCrc", pa.int32(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
    ]
)
COLUMNS = tuple(SCHEMA.names)
