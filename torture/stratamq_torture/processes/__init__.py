"""Trials on the real services, as processes: killed, paused, without power, traced.

`services` runs them, `workload` stores and reads, `ledger` has what is stored and promised,
`checker` holds the broker's answers against that.
"""
