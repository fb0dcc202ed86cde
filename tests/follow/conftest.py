"""A commit log service without followers of its own."""

from tests.support.brokers import COMMITLOG, broker_fixture

SEGMENT_BYTES = 1 << 20
LOG_ALONE = (f"commitlog.segment_bytes={SEGMENT_BYTES}", "commitlog.followers=")


own_log = broker_fixture(*LOG_ALONE, rooms=[COMMITLOG], scope="function")
