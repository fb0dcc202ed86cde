"""Many seeds of clocks that jump under a janitor."""

from stratamq_torture.janitor.simulation import Simulation
from stratamq_torture.seeds import SeedsTrial

TRIAL = SeedsTrial("janitor", Simulation, frozenset({"too early"}))
