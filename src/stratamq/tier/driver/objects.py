"""S3, Google Cloud Storage and Azure as the storage, through obstore (`stratamq[tier]`).

    storage = open_objects(ObjectSettings("s3://bucket/prefix", {"endpoint": "https://…"}))

Objects are whole: there are no positions. `Create` is a put with If-None-Match, `Swap` one with
If-Match; a version is the ETag (and the generation where the store has one). The key of an object
is the URL's prefix and its path, unchanged. Each call is one request, a `List` one for each 1 000
objects (in Azure one for each 5 000 from the folder's beginning on); nothing is retried here, since
the answer of a request that was repeated unseen would not tell whose object it found: `retrying.py`
does it. Errors have neither URLs nor credentials. A process opens its own: connections and threads
below do not survive a fork.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from stratamq.errors import BusyError, ConfigurationError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Block,
    Create,
    Delete,
    Folders,
    List,
    Listed,
    Load,
    Read,
    Size,
    StorageCall,
    StorageRefusedError,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Together,
    Version,
    WriteAt,
)
from stratamq.tier.driver.memory import short_object
from stratamq.tier.driver.storage import one_by_one

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
VIEWED_BYTES = 256 << 10
"""Smaller answers are copied: they may be pieces of a connection's buffer, all of which a view
would keep in memory."""
_CONFLICT_RETRY_MS = 100
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_KIND = re.compile(r"kind: (Connect|Timeout|Request|Interrupted|Decode)\b")
_START_BEYOND = "StartTooLarge"
"""obstore's own stores, which have no HTTP status."""
_NO_HTTP = "source: BadScheme"
"""The HTTP client's, of an http:// URL where `allow_http` is not set."""
_METADATA_SERVICE = "169.254.169.254"
"""Asked for the machine's role where no credentials are given."""
_NO_CREDENTIALS = (
    "no credentials were given and the machine has no role: set the store's options, or for S3 "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for Google GOOGLE_APPLICATION_CREDENTIALS, for "
    "Azure AZURE_STORAGE_ACCOUNT_KEY"
)
_AZURE_IS_THERE = "BlobAlreadyExists"
"""409 too, where S3 has 412: to be created, and there."""
_PASSING_STATUS = ("408", "409", "429")


@dataclass(frozen=True, slots=True)
class ObjectSettings:
    """Where the objects are.

    `options` are obstore's, by their names there: `endpoint`, `region`, `access_key_id`,
    `secret_access_key`, `session_token`, `virtual_hosted_style_request` for S3; what is not among
    them comes from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) or the machine's role.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_ms: int = 30_000
    """The limit of one request, its body included: long enough for the largest object."""
    connect_timeout_ms: int = 5_000
    allow_http: bool = False
    """An endpoint without TLS: for a store on this machine or in a trusted network."""


def open_objects(settings: ObjectSettings) -> "ObjectStorage":
    """ConfigurationError for what can be seen without a request; `probing.py` makes some."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError:
        raise ConfigurationError(
            ['a tier on object storage needs obstore: pip install "stratamq[tier]"']
        ) from None
    url = urlsplit(settings.url)
    if url.scheme not in SCHEMES or not url.netloc:
        raise ConfigurationError(
            [f"not the URL of an object store: give {', '.join(f'{s}://' for s in SCHEMES)}, "
             "a bucket and a prefix"]
        )  # fmt: skip
    if url.password is not None:
        raise ConfigurationError(
            ["the URL of the object store has a password: give credentials as options or in the "
             "environment"]
        )  # fmt: skip
    # One DELETE, which is free, for one object.
    config = {"disable_bulk_delete": "true"} if url.scheme in ("s3", "s3a") else {}
    options: dict[str, Any] = {
        "config": config | dict(settings.options),
        "client_options": {
            "timeout": f"{settings.timeout_ms}ms",
            "connect_timeout": f"{settings.connect_timeout_ms}ms",
            "allow_http": settings.allow_http,
        },
        "retry_config": {"max_retries": 0},
    }
    problem = ""
    try:
        never = "" if url.scheme in ("s3", "s3a", "gs") else "\\"
        return ObjectStorage(from_url(settings.url, **options), never)
    except (BaseError, ValueError, TypeError) as error:
        problem = _first_line(error)
    raise ConfigurationError([f"the object store's settings: {problem}"])


class ObjectStorage:
    """`Storage` over a store of obstore. Made by `open_objects`."""

    positions = False

    def __init__(self, store: "ObjectStore", never: str = "") -> None:
        """`never`: a character that the store makes another one of, so that no object has it."""
        import obstore
        from obstore import exceptions

        self._store = store
        self._never = never
        self._obstore = obstore
        self._errors = exceptions

    def perform(self, call: StorageCall[T]) -> T:
        if isinstance(call, Together):
            return cast(T, one_by_one(self, call))
        failure: Exception
        try:
            return cast(T, self._perform(call))
        except (self._errors.BaseError, OSError, ValueError, NotImplementedError) as error:
            failure = self._translated(call, error)
        # Outside the handler: the store's own text may have a signed URL.
        raise failure

    def close(self) -> None:
        """Connections end with the last reference."""

    def _perform(self, call: StorageCall[Any]) -> Any:
        match call:
            case Read():
                return self._read(call)
            case Load(path):
                result = self._obstore.get(self._store, path)
                return bytes(result.bytes()), _version(result.meta)
            case Size(path):
                return self._size(path)
            case Create(path, data):
                return _version(self._put(path, data, "create"))
            case Swap(path, data, None):
                return _version(self._put(path, data, "create"))
            case Swap(path, data, Version(tag)):
                e_tag, _, generation = tag.partition("\t")
                mode = {"e_tag": e_tag} | ({"version": generation} if generation else {})
                return _version(self._put(path, data, mode))
            case Delete(path, _):
                return self._delete(path)
            case List(folder, after, limit):
                return self._list(folder, after, limit)
            case Folders(folder):
                found = self._obstore.list_with_delimiter(self._store, folder or None)
                return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])
            case WriteAt(path):
                raise StorageRefusedError(f"{path}: an object store writes whole objects")
        raise TypeError(f"no call: {call!r}")

    def _read(self, call: Read) -> Block:
        if call.length == 0:
            size = self._size(call.path)
            if size is None:
                raise AbsentError(f"{call.path} is not there")
            if call.start > size:
                raise short_object(call, size)
            return b""
        wanted = (call.start, call.start + call.length)
        result = self._obstore.get(self._store, call.path, options={"range": wanted})
        # A range that ends beyond the object is answered with what there is of it.
        if tuple(result.range) != wanted:
            raise short_object(call, result.meta["size"])
        data = result.bytes()
        if len(data) != call.length:
            raise StorageUnavailableError(f"{call.path}: {len(data)} of {call.length} bytes came")
        return memoryview(data) if len(data) >= VIEWED_BYTES else bytes(data)

    def _size(self, path: str) -> int | None:
        try:
            return self._obstore.head(self._store, path)["size"]
        except FileNotFoundError:
            return None

    def _put(self, path: str, data: bytes | memoryview, mode: Any) -> Any:
        if self._never and self._never in path:
            raise StorageRefusedError(
                f"{path}: this object store cannot have {self._never!r} in a name", "name"
            )
        return self._obstore.put(self._store, path, data, mode=mode, use_multipart=False)

    def _delete(self, path: str) -> None:
        try:
            self._obstore.delete(self._store, path)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise

    def _list(self, folder: str, after: str, limit: int) -> list[Listed]:
        pages = self._obstore.list(
            self._store, folder or None, offset=after or None, chunk_size=limit
        )
        found: list[Listed] = []
        for page in pages:
            # Azure cannot begin behind a name: obstore lists from the beginning there.
            found += [
                Listed(meta["path"], meta["size"], round(meta["last_modified"].timestamp() * 1000))
                for meta in page
                if meta["path"] > after
            ]
            if len(found) >= limit:
                break
        return found[:limit]

    def _translated(self, call: StorageCall[Any], error: Exception) -> Exception:
        path: str = getattr(call, "path", "") or getattr(call, "folder", "")
        text = str(error)
        status, code, kind = (_found(pattern, text) for pattern in (_STATUS, _CODE, _KIND))
        seen = " ".join(word for word in ("HTTP", status, code) if word) if status else kind
        refused = StorageRefusedError(f"{path}: the object store refused: {seen}", "refused")
        if _NO_HTTP in text:
            return StorageRefusedError(
                "the object store's endpoint is http://, and requests without TLS are not allowed: "
                "give an https:// endpoint, or set tier.allow_http",
                "settings",
            )
        if "NoSuchBucket" in text:
            return StorageRefusedError("the object store has no such bucket: make it", "no bucket")
        if _METADATA_SERVICE in text:
            kind_of = StorageRefusedError if status.startswith("4") else StorageUnavailableError
            return kind_of(f"{path}: {_NO_CREDENTIALS}")
        if isinstance(error, FileNotFoundError):
            if isinstance(call, Swap):
                return SwapLostError(f"{path} is gone")
            return AbsentError(f"{path} is not there") if isinstance(call, Read | Load) else refused
        if status == "409" and code != _AZURE_IS_THERE:
            message = f"{path}: another request changes it at this moment"
            return BusyError(message, _CONFLICT_RETRY_MS)
        if isinstance(error, self._errors.AlreadyExistsError | self._errors.PreconditionError):
            if isinstance(call, Swap):
                return SwapLostError(f"{path} has another content")
            return AlreadyThereError(f"{path} is there")
        if isinstance(call, Read) and (status == "416" or _START_BEYOND in text):
            return self._beyond(call)
        if isinstance(
            error, self._errors.PermissionDeniedError | self._errors.UnauthenticatedError
        ):
            return StorageRefusedError(
                f"{path}: the object store refused these credentials: {seen}", "credentials"
            )
        if isinstance(error, NotImplementedError):
            return StorageRefusedError(
                f"{path}: the object store's settings switch conditional writes off", "settings"
            )
        if isinstance(error, self._errors.NotSupportedError | self._errors.InvalidPathError):
            return refused
        if (status.startswith("4") and status not in _PASSING_STATUS) or status == "501":
            return refused
        if isinstance(error, self._errors.BaseError | OSError):
            return StorageUnavailableError(f"{path}: {_without_answer(seen)}")
        return error

    def _beyond(self, call: Read) -> Exception:
        """The range begins at the object's end or behind it: how long is the object?"""
        try:
            size = self._size(call.path)
        except (self._errors.BaseError, OSError):
            return StorageUnavailableError(f"{call.path}: the range is beyond its end")
        if size is None:
            return AbsentError(f"{call.path} is not there")
        return short_object(call, size)


def _version(meta: Mapping[str, Any]) -> Version:
    e_tag, generation = meta["e_tag"], meta["version"]
    if not e_tag:
        raise StorageRefusedError("the object store gives no ETags: no version can be swapped")
    return Version(f"{e_tag}\t{generation}" if generation else e_tag)


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _without_answer(seen: str) -> str:
    if seen.startswith("HTTP"):
        return f"the object store answered {seen}"
    words = {"Connect": "no connection to the object store", "Timeout": "no answer in time"}
    return words.get(seen, "the answer of the object store did not arrive whole")


def _first_line(error: Exception) -> str:
    """obstore's sentence about a setting; it names keys, and no values of secret ones."""
    return str(error).partition("\n")[0].replace("Generic ", "")
