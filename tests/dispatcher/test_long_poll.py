"""Who waits for queues is announced: each queue with its first watch, and without its last."""

from stratamq_dispatcher.long_poll import REMOVED_AT_ONCE, LongPolls


def polls_and_changes() -> tuple[LongPolls, list[tuple[tuple[str, int], bool]]]:
    changes: list[tuple[tuple[str, int], bool]] = []
    return LongPolls(lambda key, is_watched: changes.append((key, is_watched))), changes


def test_a_queue_is_announced_with_its_first_watch_and_when_it_has_lost_its_last():
    polls, changes = polls_and_changes()
    a, b = ("t", 0), ("t", 1)
    with polls.watch(lambda: None) as first, polls.watch(lambda: None) as second:
        assert len(polls) == 2
        first.add(0, a)
        first.add(1, a)
        second.add(0, a)
        assert changes == [(a, True)]
        second.add(1, b)
        assert changes == [(a, True), (b, True)]
        assert polls.is_watched(b)
        second.close()
        assert changes[2:] == [(b, False)]
        assert not polls.is_watched(b)
    assert changes[3:] == [(a, False)]


def test_queues_of_a_watch_that_is_removed_in_parts_are_announced_one_by_one():
    polls, changes = polls_and_changes()
    keys = [("t", number) for number in range(REMOVED_AT_ONCE + 1)]
    with polls.watch(lambda: None) as watch:
        for number, key in enumerate(keys):
            watch.add(number, key)
    assert len(changes) == len(keys) + REMOVED_AT_ONCE
    polls.sweep()
    assert [key for key, is_watched in changes if not is_watched] == keys[::-1]
