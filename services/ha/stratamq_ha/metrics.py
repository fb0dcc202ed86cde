"""What Prometheus sees of replication."""

from stratamq.service.metrics import counter, gauge

_SLAVES = "How many slaves follow, and how far are they behind?"
_LOST = "Why do connections between brokers end?"
_FOLLOWS = "Does this slave follow its master?"

SLAVES = gauge("ha_slaves", "Slaves that are connected.", asks=_SLAVES)
SLAVE_LAG = gauge(
    "ha_slave_lag_bytes", "What may be shipped and is not acknowledged.", ["slave"], asks=_SLAVES
)
SLAVE_LAG_SECONDS = gauge(
    "ha_slave_lag_seconds",
    "For how long there has been something to ship that a slave has not acknowledged.",
    ["slave"],
    asks=_SLAVES,
)
STANDING_STILL = gauge(
    "ha_slaves_standing_still",
    "Slaves that report that their log does not take what they are sent.",
    asks=_SLAVES,
)
SENT = counter("ha_sent_bytes", "Bytes of the log that went out to slaves.", asks=_SLAVES)
CLOSED = counter(
    "ha_closed_connections", "Slaves' connections that ended, by reason.", ["reason"], asks=_LOST
)
SHIPPABLE = gauge("ha_shippable_offset_bytes", "Up to here slaves may have the log.", asks=_SLAVES)
FOLLOWS = gauge("ha_follows", "1 while this slave is connected to its master.", asks=_FOLLOWS)
STANDS_STILL = gauge(
    "ha_stands_still",
    "1 while this slave's log does not take what its master sends.",
    asks=_FOLLOWS,
)
RECEIVED = counter(
    "ha_received_bytes", "Bytes of the log that came from the master.", asks=_FOLLOWS
)
APPENDED = gauge(
    "ha_appended_offset_bytes", "Up to here this slave has its master's log.", asks=_FOLLOWS
)
LEFT = counter(
    "ha_left_masters", "Connections to the master that ended, by reason.", ["reason"], asks=_LOST
)
METADATA = counter(
    "ha_metadata_documents",
    "Documents of the master that this slave took over.",
    ["kind"],
    asks=_FOLLOWS,
)
