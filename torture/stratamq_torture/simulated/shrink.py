"""A failing run made short: operations are left out as long as the same rule stays broken.

Every operation carries its own seed, so that those that are left do what they did.
"""

from collections.abc import Sequence

from stratamq_torture.simulated.profiles import DEFAULT, Profile
from stratamq_torture.simulated.simulation import Operation, Outcome, Simulation

REPLAYS = 1_500
"""So many at most: a few minutes."""


def shrink(outcome: Outcome, profile: Profile = DEFAULT, replays: int = REPLAYS) -> list[int]:
    """Numbers (from 1) of operations of a failed run that fail by the same rule."""
    assert outcome.violation is not None
    rule = outcome.violation.rule

    def fails(numbers: Sequence[int]) -> bool:
        kept = [outcome.operations[number - 1] for number in numbers]
        violation = Simulation(outcome.seed, profile).replay(kept).violation
        return violation is not None and violation.rule == rule

    numbers = list(range(1, len(outcome.operations) + 1))
    piece = len(numbers)
    while piece and replays > 0:
        start = 0
        shorter = False
        while start < len(numbers) and replays > 0:
            left = numbers[:start] + numbers[start + piece :]
            replays -= 1
            if fails(left):
                numbers, shorter = left, True
            else:
                start += piece
        if not (shorter and piece == 1):
            piece //= 2
    return numbers


def kept(outcome: Outcome, numbers: Sequence[int]) -> list[Operation]:
    """The operations of these numbers."""
    return [outcome.operations[number - 1] for number in numbers]
