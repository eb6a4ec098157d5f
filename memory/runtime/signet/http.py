"""HTTP requests of Signet's clients: the caller, the body and its limits, and error answers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import pydantic_core
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from memory.adapter._bounded import is_loopback
from memory.contract import errors
from memory.contract._surviving import ends_the_task
from memory.contract.errors import MemslotError
from memory.contract.scope import MemoryScope
from memory.runtime.signet.sessions import Caller, TokenGrant
from memory.runtime.signet.settings import ServeSettings
from memory.runtime.signet.types import Refused

log = logging.getLogger("memslot.signet")

_DIRECTORIES = re.compile(r"(?<![\w:/.])/(?:[^\s/:;,'\"]+/)+")

_OWN_SITES = ("none", "same-origin", "same-site")


_STATUS: tuple[tuple[type[MemslotError], int], ...] = (
    (errors.IsolationError, 500),
    (errors.InputError, 400),
    (errors.ScopeError, 400),
    (errors.ReadOnlyError, 403),
    (errors.CapabilityNotSupported, 501),
    (errors.BackendError, 503),
    (errors.StoreError, 503),
)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Call(Generic[P]):
    """A request of a known caller, with its parsed parameters."""

    caller: Caller
    request: Request
    params: P

    @property
    def item_id(self) -> str:
        return str(self.request.path_params["item_id"])


class Callers:
    """The callers that a server answers, and the scope of each.

    With ``grants``, a caller needs a token. Without them, callers on this machine get the scope ``own``.
    Tokens are kept as hashes, so the time of a look-up tells nothing about them.
    """

    def __init__(
        self, grants: Mapping[str, TokenGrant], own: MemoryScope | None, *, read_only: bool = False
    ) -> None:
        self._own = None if own is None else TokenGrant(own)
        self._read_only = read_only
        self._grants = {_digest(token): grant for token, grant in grants.items()}

    def known(self) -> list[Caller]:
        own = [] if self._own is None else [self._own]
        return [self._caller(grant) for grant in self._grants.values() or own]

    def _caller(self, grant: TokenGrant, client: str = "") -> Caller:
        return Caller(grant.scope, client, grant.read_only or self._read_only)

    def of(self, request: Request) -> Caller:
        """Identify the sender of a request.

        Raises:
            Refused: the sender is unknown, or a web page of another site sent the request.
        """
        headers = request.headers
        if len(headers.getlist("host")) > 1:
            raise Refused(400, "the request has two Host headers; send one")
        # A browser sends Origin with a POST and Sec-Fetch-Site with every request. Plugins send neither.
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if site not in _OWN_SITES or (origin and not _of_this_machine(origin)):
            raise Refused(403, "requests of web pages are not answered")
        grant = self._find(headers.get("authorization", "")) if self._grants else self._own
        # Without tokens, only the address protects the memory. The check of the name defeats DNS rebinding.
        if not self._grants and not _of_this_machine(str(request.url)):
            raise Refused(403, "without tokens only requests to a loopback address are answered")
        if grant is None:
            raise Refused(401, "a bearer token is required")
        return self._caller(grant, headers.get("x-signet-actor", "")[:200])

    def _find(self, header: str) -> TokenGrant | None:
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            return None
        return self._grants.get(_digest(token.strip()))


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


async def given_in(request: Request, settings: ServeSettings) -> Mapping[str, Any]:
    """Read a request's parameters: the query of a GET, else the JSON body. A DELETE may have both.

    Raises:
        Refused: the body is not a JSON object, is too long, or does not arrive in time.
    """
    if request.method == "GET":
        return request.query_params
    raw = await _bytes_of(request, settings)
    if request.method == "DELETE" and not raw:
        return request.query_params
    try:
        body = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object in UTF-8, with finite numbers")
    return {**body, **request.query_params} if request.method == "DELETE" else body


async def _bytes_of(request: Request, settings: ServeSettings) -> bytes:
    raw = bytearray()
    with anyio.move_on_after(settings.body_s) as waiting:
        async for piece in request.stream():
            raw += piece
            if len(raw) > settings.max_body_bytes:
                raise Refused(413, f"the body is longer than {settings.max_body_bytes} bytes")
    if waiting.cancelled_caught:
        raise Refused(408, f"the body did not arrive within {settings.body_s:g} s")
    return bytes(raw)


@dataclass(frozen=True)
class Mounted:
    """An ASGI application for known callers. Limits apply to POST requests, but not to event streams."""

    caller: Callable[[Request], Caller]
    settings: ServeSettings
    app_for: Callable[[MemoryScope, bool], Any]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            caller = self.caller(request)
            app = self.app_for(caller.scope, caller.read_only)
            if request.method != "POST":
                await app(scope, receive, send)
                return
            unread = [await _bytes_of(request, self.settings)]

            async def read() -> Any:
                if unread:
                    return {"type": "http.request", "body": unread.pop(), "more_body": False}
                return await receive()

            await app(scope, read, send)
        except BaseException as error:
            if ends_the_task(error):
                raise
            with suppress(RuntimeError):  # the answer has already begun
                await failure_answer(request.url.path, error)(scope, receive, send)


def failure_answer(route: str, error: BaseException) -> JSONResponse:
    """Return the answer to a request that failed, and log an unforeseen failure."""
    if isinstance(error, Refused):
        return JSONResponse({**error.more, "error": str(error)}, error.status)
    if isinstance(error, ClientDisconnect):
        return error_answer(499, "the client went away")
    if isinstance(error, MemslotError):
        log.warning("%s: %s", route, error)
        return error_answer(
            next((code for kind, code in _STATUS if isinstance(error, kind)), 500), str(error)
        )
    log.error("%s: unexpected %s", route, type(error).__name__)
    return error_answer(500, "internal error")


def error_answer(status: int, why: str) -> JSONResponse:
    """Return an error in the daemon's format: a status, and one sentence under ``error``."""
    return JSONResponse({"error": without_directories(why)}, status)


def without_directories(text: str) -> str:
    """Reduce absolute paths to file names, because clients must not learn this machine's directories."""
    return _DIRECTORIES.sub("", text)


@lru_cache(maxsize=256)  # each request needs it, mostly for the same address
def _of_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:  # not a URL
        return False
