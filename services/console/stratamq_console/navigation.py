"""The pages that each page leads to, in the order in which they are shown."""

from typing import NamedTuple


class NavigationItem(NamedTuple):
    """A link of the navigation. `path` begins the paths of the pages that it stands for."""

    title: str
    path: str


NAVIGATION = (
    NavigationItem("Overview", "/"),
    NavigationItem("Topics", "/topics"),
    NavigationItem("Messages", "/messages"),
    NavigationItem("Live", "/live"),
    NavigationItem("Where is it", "/where"),
    NavigationItem("Groups", "/groups"),
    NavigationItem("Dead letters", "/dead-letters"),
    NavigationItem("Storage", "/storage"),
    NavigationItem("Cluster", "/cluster"),
)


def current(path: str) -> str:
    """The path of the item that a page belongs to; "" for none."""
    if path.startswith("/groups/") and "/dead-letters" in path:
        return "/dead-letters"
    return next(
        (
            one.path
            for one in reversed(NAVIGATION)
            if path == one.path or (one.path != "/" and path.startswith(f"{one.path}/"))
        ),
        "",
    )
