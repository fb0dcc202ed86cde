"""Hypothesis on a machine with other things to do: examples may take their time."""

from hypothesis import HealthCheck, settings


def patient(max_examples: int = 100) -> settings:
    """Settings for properties that a busy processor must not make fail."""
    return settings(
        max_examples=max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
