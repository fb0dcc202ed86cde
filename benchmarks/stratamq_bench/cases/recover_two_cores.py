"""A whole recovery by two processes beside the same by one: `recover`, compared otherwise."""

from stratamq_bench.cases.recover import run_two_cores as run

__all__ = ["run"]
