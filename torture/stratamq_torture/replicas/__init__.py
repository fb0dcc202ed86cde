"""Trials on two real brokers of one name: the master is lost, the slave takes its place.

`wire` is what is between them, `brokers` runs them and reports their states, `losses` what happens
to a master, `trial` plays rounds. Messages, promises and checks are those of `processes`.
"""
