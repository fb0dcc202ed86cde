"""What a person reads while a log is being opened."""

import logging

from stratamq_commitlog.running import LOG_EVERY_NS, RecoveryProgress

from stratamq.files.simulated import SimulatedClock

MIB = 1 << 20


def test_the_sentence_has_position_rate_and_time_left():
    clock = SimulatedClock()
    progress = RecoveryProgress(clock)
    assert progress.text == "starting"
    progress.update(100 * MIB, 1100 * MIB)
    assert progress.text == "recovered 100 of 1100 MiB"
    clock.advance_ms(2_000)
    progress.update(500 * MIB, 1100 * MIB)
    assert progress.text == "recovered 500 of 1100 MiB, 200 MiB/s, 3 s left"


def test_it_is_logged_every_few_seconds_and_not_more_often(caplog):
    caplog.set_level(logging.INFO)
    clock = SimulatedClock()
    progress = RecoveryProgress(clock)
    for done in range(11):
        progress.update(done * MIB, 10 * MIB)
        clock.advance_ms(LOG_EVERY_NS // 2_000_000)
    lines = [record for record in caplog.records if record.message == "recovering"]
    assert len(lines) == 5
    assert lines[0].total == 10 * MIB
