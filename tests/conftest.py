"""What holds for every test: a busy machine is slow, and that is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("stratamq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stratamq")
