"""A machine's clocks, whose wall clock is put forward and back between any two calls of a look."""

from stratamq.files.simulated import SimulatedClock


class JumpingClock(SimulatedClock):
    """`arm` plans a jump: so many touches later, a touch being a reading of a clock or a call to
    another service. The monotonic clock tells the true time."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0
        self._began_ms = super().wall_ms()
        self._touches = self._by_ms = 0
        self._wrong = [(self._began_ms, 0)]

    @property
    def true_ms(self) -> int:
        return self._began_ms + super().monotonic_ns() // 1_000_000

    @property
    def wrong_ms(self) -> int:
        """How far the wall clock is ahead of the truth."""
        return super().wall_ms() - self.true_ms

    def wall_ms(self) -> int:
        self.touch()
        return super().wall_ms()

    def monotonic_ns(self) -> int:
        self.touch()
        return super().monotonic_ns()

    def arm(self, touches: int, by_ms: int) -> None:
        self._touches, self._by_ms = touches, by_ms

    def disarm(self) -> None:
        """What has not come until now does not come."""
        self._touches = 0

    def touch(self) -> None:
        if self._touches:
            self._touches -= 1
            if not self._touches:
                self.jump(self._by_ms)

    def jump(self, by_ms: int) -> None:
        self.jumped += 1
        self.set_wall_ms(super().wall_ms() + by_ms)
        self._wrong.append((self.true_ms, self.wrong_ms))

    def most_wrong_ms(self, first_ms: int, last_ms: int) -> int:
        """The furthest ahead of the truth that the wall clock was between two true times."""
        before = [wrong for at, wrong in self._wrong if at < first_ms][-1:]
        return max([*before, *(wrong for at, wrong in self._wrong if first_ms <= at <= last_ms)])
