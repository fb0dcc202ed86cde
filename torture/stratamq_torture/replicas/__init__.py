"""Trials on two real brokers of one name: the master is lost, the slave takes its place.

`brokers` runs them and reports their states, `trial` plays rounds. Messages, promises, checks and
the wire between the two are those of `processes`.
"""
