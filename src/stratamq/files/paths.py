"""Paths inside a store: relative, with `/`, never leaving the root."""


def checked(path: str) -> str:
    """`path` itself, or ValueError: a path that leaves the root is a fault of the caller."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise ValueError(f"not a path inside the store: {path!r}")
    return path


def parent(path: str) -> str:
    """The directory that holds `path`; "" is the root."""
    return path.rpartition("/")[0]


def base_name(path: str) -> str:
    """The last component."""
    return path.rpartition("/")[2]


def ancestors(path: str) -> list[str]:
    """Every directory from the first below the root down to `path` itself."""
    parts = [part for part in path.split("/") if part]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
