"""DispatcherService: messages of the wire in, engine calls out, and nothing else."""

from stratamq_dispatcher.servicer.service import MAX_UNITS, DispatcherServicer

__all__ = ["MAX_UNITS", "DispatcherServicer"]
