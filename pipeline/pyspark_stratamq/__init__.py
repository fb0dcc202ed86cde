"""Spark finds this module by its name and registers the data source `stratamq` by itself."""

from stratamq_pipeline.source import StrataMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
