"""Requests of Signet's clients as HTTP brings them: who sent one, its body within the limits, errors as answers."""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import anyio
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from memory.adapter._address import is_loopback
from memory.contract.scope import MemoryScope
from memory.runtime.signet.service import Refused
from memory.runtime.signet.sessions import Caller

Body = Mapping[str, Any]
_PATHS = (None, "plugin", "legacy")


@dataclass(frozen=True)
class Limits:
    """What the server takes.

    Attributes:
        body_bytes: of one request.
        body_s: seconds for a body to arrive.
        at_once: requests in work, those for what is mounted beside included; more are answered 503 with
            ``Retry-After``.
    """

    body_bytes: int = 2_000_000
    body_s: float = 10.0
    at_once: int = 256


@dataclass(frozen=True)
class _Tokens:
    """Which token is whose; compared in constant time, kept as hashes."""

    by_hash: Mapping[bytes, MemoryScope] = field(repr=False)

    def find(self, header: str) -> MemoryScope | None:
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            return None
        given = sha256(token.strip().encode("utf-8", "replace")).digest()
        found = None
        for known, whose in self.by_hash.items():
            if hmac.compare_digest(known, given):
                found = whose
        return found


class Callers:
    """Who may ask, and whose memory they are answered from.

    Args:
        tokens: bearer token -> whose memory it opens; empty asks for none.
        own: whose memory is opened to whoever is on this machine, where there are no tokens.
    """

    def __init__(self, tokens: Mapping[str, MemoryScope], own: MemoryScope | None) -> None:
        self._own = own
        self._tokens = _Tokens({sha256(token.encode()).digest(): scope for token, scope in tokens.items()})

    @property
    def by_token(self) -> bool:
        """Whether a token is asked for."""
        return bool(self._tokens.by_hash)

    @property
    def scopes(self) -> tuple[MemoryScope, ...]:
        """The memories that callers may be given."""
        return tuple(self._tokens.by_hash.values()) or ((self._own,) if self._own else ())

    def of(self, request: Request) -> Caller:
        """Who sent a request.

        Raises:
            Refused: nobody this server knows, or a web page of somewhere else.
        """
        origin = request.headers.get("origin")
        if origin and not _of_this_machine(origin):
            raise Refused(403, "requests of web pages are not answered")
        path = request.headers.get("x-signet-runtime-path")
        if path not in _PATHS:
            raise Refused(400, "x-signet-runtime-path must be plugin or legacy")
        client = request.headers.get("x-signet-actor", "")[:200]
        if not self.by_token:
            # Without tokens the address is all that protects; a name that was rebound to it is not loopback's.
            if not _of_this_machine(str(request.url)):
                raise Refused(403, "without tokens only requests to a loopback address are answered")
            assert self._own is not None
            return Caller(self._own, client, path)
        scope = self._tokens.find(request.headers.get("authorization", ""))
        if scope is None:
            raise Refused(401, "a bearer token is required")
        return Caller(scope, client, path)


async def body_of(request: Request, limits: Limits) -> Body:
    """The JSON object a request carries; empty where its method has none.

    Raises:
        Refused: it is longer or slower than the limits allow, or no JSON object.
    """
    if request.method not in ("POST", "PATCH", "PUT"):
        return {}
    raw = await _bytes_of(request, limits)
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_finite, parse_float=_finite)
        if b"\\u" in raw:
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Refused(400, "the body must be a JSON object in UTF-8, with finite numbers") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    return body


async def _bytes_of(request: Request, limits: Limits) -> bytes:
    raw = bytearray()
    with anyio.move_on_after(limits.body_s) as waiting:
        async for piece in request.stream():
            raw += piece
            if len(raw) > limits.body_bytes:
                raise Refused(413, f"the body is longer than {limits.body_bytes} bytes")
    if waiting.cancelled_caught:
        raise Refused(408, f"the body did not arrive within {limits.body_s:g} s")
    return bytes(raw)


class Work:
    """The requests in work.

    Args:
        max_requests: at once.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._now = 0

    @contextmanager
    def request(self, *, admitted: bool = False) -> Iterator[None]:
        """Around a request; one that was ``admitted`` before is no more than counted.

        Raises:
            Busy: there are too many.
        """
        if self._now >= self._max_requests and not admitted:
            raise Busy(503, "too many requests at once; try again")
        self._now += 1
        try:
            yield
        finally:
            self._now -= 1


class Busy(Refused):
    """A request is welcome a second later."""


class Mounted:
    """An ASGI application for known callers, each answered by that of their scope, within the limits.

    Args:
        caller: who sent a request.
        limits: of a POST; what a client merely listens to has none.
        work: the requests in work.
        of_scope: a scope's application.
    """

    def __init__(
        self,
        caller: Callable[[Request], Caller],
        limits: Limits,
        work: Work,
        of_scope: Callable[[MemoryScope], Any],
    ) -> None:
        self._caller = caller
        self._limits = limits
        self._work = work
        self._of_scope = of_scope

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            app = self._of_scope(self._caller(request).scope)
            if request.method != "POST":
                await app(scope, receive, send)
                return
            with self._work.request():
                unread = [await _bytes_of(request, self._limits)]

                async def read() -> Any:
                    if unread:
                        return {"type": "http.request", "body": unread.pop(), "more_body": False}
                    return await receive()

                await app(scope, read, send)
        except Refused as refused:
            await refused_answer(refused)(scope, receive, send)
        except ClientDisconnect:
            return


def refused_answer(refused: Refused) -> JSONResponse:
    """A request that was refused, as its client is told."""
    headers = {"retry-after": "1"} if isinstance(refused, Busy) else {}
    return JSONResponse({**refused.more, "error": str(refused)}, refused.status, headers)


def error_answer(status: int, why: str) -> JSONResponse:
    """An error as the daemon words it: a status, and one sentence under ``error``."""
    return JSONResponse({"error": why}, status)


def _finite(number: str) -> float:
    """No answer could hold another."""
    if not math.isfinite(found := float(number)):
        raise ValueError("not finite")
    return found


def _of_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:  # it is none
        return False
