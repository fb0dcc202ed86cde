"""DispatcherService: messages of the wire in, engine calls out, and nothing else."""

from stratamq_dispatcher.servicer.service import MAX_UNITS, SERVICE_NAME, DispatcherServicer

__all__ = ["MAX_UNITS", "SERVICE_NAME", "DispatcherServicer"]
