"""Many seeds of simulated brokers."""

from stratamq_torture.brokers.simulation import Simulation
from stratamq_torture.seeds import SeedsTrial

TRIAL = SeedsTrial("brokers", Simulation, frozenset({"lost", "seen", "replaced"}), at_once=5)
