"""Who watches queues is announced when it begins to."""

from stratamq_dispatcher.long_poll import LongPolls


def test_a_watch_is_announced_when_it_is_opened_and_counted_until_it_is_closed():
    polls = LongPolls()
    counts: list[int] = []
    polls.on_watch = lambda: counts.append(len(polls))
    with polls.watch(lambda: None), polls.watch(lambda: None):
        assert counts == [1, 2]
    assert len(polls) == 0
