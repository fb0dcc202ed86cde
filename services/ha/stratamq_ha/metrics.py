"""What Prometheus sees of replication."""

from stratamq.service.metrics import counter, gauge

SLAVES = gauge("ha_slaves", "Slaves that are connected.")
SLAVE_LAG = gauge("ha_slave_lag_bytes", "What may be shipped and is not acknowledged.", ["slave"])
SENT = counter("ha_sent_bytes", "Bytes of the log that went out to slaves.")
CLOSED = counter("ha_closed_connections", "Slaves' connections that ended, by reason.", ["reason"])
SHIPPABLE = gauge("ha_shippable_offset_bytes", "Up to here slaves may have the log.")
FOLLOWS = gauge("ha_follows", "1 while this slave is connected to its master.")
RECEIVED = counter("ha_received_bytes", "Bytes of the log that came from the master.")
APPENDED = gauge("ha_appended_offset_bytes", "Up to here this slave has its master's log.")
LEFT = counter("ha_left_masters", "Connections to the master that ended, by reason.", ["reason"])
METADATA = counter(
    "ha_metadata_documents", "Documents of the master that this slave took over.", ["kind"]
)
