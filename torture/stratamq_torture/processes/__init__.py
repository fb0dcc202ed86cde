"""Trials on the real services, as processes: killed, paused, without power, traced.

`services` runs them, `messages` makes what is stored, `workload` stores and reads it, `ledger`
remembers what was promised, `checker` holds the broker's answers and files against that.
"""
