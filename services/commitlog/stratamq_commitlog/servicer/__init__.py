"""The log on the wire: messages in, engine calls out, and nothing else."""

from stratamq_commitlog.servicer.service import SERVICE_NAME, CommitLogServicer

__all__ = ["SERVICE_NAME", "CommitLogServicer"]
