"""What callers of any protocol do with the log: values in, values out, and no message of the wire.

A protocol is a codec in front of these (`docs/a-new-protocol.md`); gRPC's is `servicer`. Each use
case takes the `Call` that it serves, and the log from `ServedLog`, which has none while it opens.
"""
