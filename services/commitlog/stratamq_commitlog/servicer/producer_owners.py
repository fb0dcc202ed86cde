"""Whose a producer's number is. It lies in every message, so that those who read them know it; who
sent with another's number would end that producer's stream, and have its next messages taken for
ones that were sent before."""

from stratamq.errors import NotPermittedError
from stratamq.service.entrance import calling

MAX_OWNERS = 65_536


class ProducerOwners:
    """The users of the numbers that were used last. Belongs to the event loop."""

    def __init__(self) -> None:
        self._users: dict[int, str] = {}
        """The longest unused first."""

    def require(self, producer: int) -> None:
        """Within a call: give the number to the caller unless it has an owner. Services of the
        broker and members may use any number. Raises NotPermittedError if another user owns it."""
        call = calling()
        if not producer or call is None or not call.caller.name:
            return
        caller = call.caller
        user = self._users.pop(producer, caller.name)
        if caller.trusted:
            user = caller.name
        self._users[producer] = user
        if len(self._users) > MAX_OWNERS:
            del self._users[next(iter(self._users))]
        if user != caller.name:
            raise NotPermittedError(
                f"{caller.name} may not send with this producer's number: another user does"
            )
