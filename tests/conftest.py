"""What holds for every test: a busy machine is slow, and that is no failure."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("stratamq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stratamq")

# A shell that runs the tests in the background makes them ignore SIGINT, and what they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)
