"""Many seeds of clocks that jump under a janitor."""

from stratamq.rpc.rooms import JANITOR
from stratamq_torture.janitor.simulation import Simulation
from stratamq_torture.seeds import SeedsTrial

TRIAL = SeedsTrial(JANITOR, Simulation, frozenset({"too early"}))
