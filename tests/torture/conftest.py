"""Trials here start their services at less cost."""

from tests.support.forked_trials import forked_services

__all__ = ["forked_services"]
