"""Many topics, many queues: messages go round robin, and every queue gets a tail of its own."""

from pathlib import Path

from stratamq_bench.cases.follow import followed
from stratamq_bench.load import RUN_MESSAGES, Places
from stratamq_bench.plan import Plan
from stratamq_bench.report import Case
from stratamq_bench.streaming import Stream


def run(place: Path, plan: Plan, *, topics: int, queues: int, batch: int) -> Case:
    """Sixteen messages to a queue, then the next topic's: a batch of 16 is of one topic."""
    places = Places(plan.scaled(topics, min(topics, 20)), plan.scaled(queues, 4), RUN_MESSAGES)
    return followed(place, plan, Stream(batch=batch, followers=True, places=places))
