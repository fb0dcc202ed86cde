"""Static files of the pages, kept in memory: those of the version that runs."""

import hashlib
import mimetypes
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

TAG_BYTES = 16


class StaticFile(NamedTuple):
    data: bytes
    kind: str
    tag: str


def static_files(directory: Path) -> BaseRoute:
    """A route for all files of a directory, which are read now. A browser that has a file already
    is answered 304."""
    files = {one.name: _read(one) for one in directory.iterdir() if one.is_file()}

    async def serve(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        headers = {"ETag": found.tag}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(found.data, headers=headers, media_type=found.kind)

    return Route("/static/{name}", serve)


def _read(path: Path) -> StaticFile:
    data = path.read_bytes()
    kind, _ = mimetypes.guess_type(path.name)
    tag = hashlib.sha256(data).hexdigest()[: 2 * TAG_BYTES]
    return StaticFile(data, kind or "text/plain", f'"{tag}"')
