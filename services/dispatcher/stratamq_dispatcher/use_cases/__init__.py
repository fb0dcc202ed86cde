"""What callers of any protocol do with queues and groups: values in, values out, and no message of
the wire. A protocol is a codec in front of these (`docs/a-new-protocol.md`); gRPC's is `servicer`.
"""
