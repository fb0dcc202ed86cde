"""`<root>/stratamq/<room>.lock`: one process of a room over one store directory.

Taken before anything is announced, so that a second start touches nothing of the first one's.
"""

import os

from stratamq.errors import StoreRefusedError
from stratamq.files.port import OWN_DIRECTORY, Files, Lock


def take_room_lock(files: Files, room: str) -> Lock:
    """The room's lock, held until it is closed or the process ends.

    StoreRefusedError when another process holds it, or when what lies there can be no lock.
    """
    path = f"{OWN_DIRECTORY}/{room}.lock"
    try:
        return files.lock(path, str(os.getpid()).encode())
    except BlockingIOError:
        raise StoreRefusedError(
            f"the store is in use: another {room} service runs on this directory"
        ) from None
    except OSError as error:
        raise StoreRefusedError(
            f"{path} cannot be locked: {error.strerror or error}. Move away what lies there"
        ) from error
