"""Many seeds of the tier's writing."""

from stratamq_torture.seeds import SeedsTrial
from stratamq_torture.tier.simulation import Simulation

TRIAL = SeedsTrial("tier", Simulation, frozenset({"lost", "bytes", "hold"}))
