"""What Prometheus sees of replication."""

from stratamq.service.metrics import counter, gauge

_SLAVES = "How many slaves follow, and how far are they behind?"
_LOST = "Why do connections between brokers end?"
_FOLLOWS = "Does this slave follow its master?"

SLAVES = gauge("ha_slaves", "Connected slaves.", asks=_SLAVES)
SLAVE_LAG = gauge(
    "ha_slave_lag_bytes",
    "Bytes that can be sent to a slave, or were sent, and are not acknowledged.",
    ["slave"],
    asks=_SLAVES,
)
SLAVE_LAG_SECONDS = gauge(
    "ha_slave_lag_seconds",
    "Time for which a slave has had unacknowledged bytes.",
    ["slave"],
    asks=_SLAVES,
)
STANDING_STILL = gauge(
    "ha_slaves_standing_still",
    "Slaves that report that their log refuses what the master sends.",
    asks=_SLAVES,
)
SENT = counter("ha_sent_bytes", "Bytes of the log sent to slaves.", asks=_SLAVES)
CLOSED = counter(
    "ha_closed_connections", "Closed connections of slaves, by reason.", ["reason"], asks=_LOST
)
SHIPPABLE = gauge(
    "ha_shippable_offset_bytes",
    "End of the part of the log that may be sent to slaves.",
    asks=_SLAVES,
)
FOLLOWS = gauge("ha_follows", "1 while this slave is connected to its master.", asks=_FOLLOWS)
STANDS_STILL = gauge(
    "ha_stands_still",
    "1 while this slave's log refuses what its master sends.",
    asks=_FOLLOWS,
)
RECEIVED = counter("ha_received_bytes", "Bytes of the log received from the master.", asks=_FOLLOWS)
APPENDED = gauge(
    "ha_appended_offset_bytes",
    "End of the part of its master's log that this slave has appended.",
    asks=_FOLLOWS,
)
LEFT = counter(
    "ha_left_masters", "Closed connections to the master, by reason.", ["reason"], asks=_LOST
)
METADATA = counter(
    "ha_metadata_documents",
    "Metadata documents that this slave copied from its master.",
    ["kind"],
    asks=_FOLLOWS,
)
