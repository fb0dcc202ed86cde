"""Many seeds of agents."""

from stratamq_torture.agents.simulation import Simulation
from stratamq_torture.seeds import SeedsTrial

TRIAL = SeedsTrial("agents", Simulation, frozenset({"two masters", "lost"}))
