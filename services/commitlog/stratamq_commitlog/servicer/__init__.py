"""The log on the wire: messages in, engine calls out, and nothing else."""

from stratamq_commitlog.servicer.service import CommitLogServicer

__all__ = ["CommitLogServicer"]
