"""JSON over HTTP, for adapters whose backend has no SDK worth importing.

Error bodies repeat the request, so errors show only their codes, field names and times. Redirects are not
followed, because they would carry the key elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from functools import partial
from typing import Any, NoReturn, Self, TypeVar

import anyio
import httpx
from pydantic import JsonValue, SecretStr

from memory.adapter._bounded import http_client, server_address
from memory.adapter._sdk import warnings_only
from memory.contract._model_reasons import reason_in
from memory.contract.errors import (
    BackendError,
    BackendProtocolError,
    BackendRejected,
    BackendUnavailable,
    InputError,
)
from memory.contract.native_errors import HTTPX_ERRORS, normalise_error

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_HINTS = {
    401: "the API key is missing, wrong or expired",
    403: "the API key may not do this",
    404: "there is no such route or record",
    413: "the request is too large",
    422: "the {server} refused the request's form",
    429: "the quota is used up",
}
_JSON: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text", int: "a number"}
_CARRIED_OUT = (302, 303)  # other redirects mean that the request must be sent elsewhere
_ROUTE_WORD = re.compile(r"|\.well-known|v\d|[a-z]{1,20}(?:-[a-z]{1,20}){0,2}")


def check_url(url: str, where: str = "url") -> str:
    """As :func:`server_address`, but raises InputError, which names ``where``."""
    try:
        return server_address(url)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def bearer(api_key: str | SecretStr | None) -> dict[str, str]:
    """The header with the key, if there is one. Raises InputError if no header can hold it."""
    if isinstance(api_key, SecretStr):
        api_key = api_key.get_secret_value()
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable() and api_key == api_key.strip()):
        raise InputError("api_key: holds characters that cannot stand in an HTTP header; copy it again")
    return {"Authorization": f"Bearer {api_key}"}


def expect(kind: type[T], answer: object, where: str) -> T:
    """``answer``, if it is a ``dict``, ``list``, ``str`` or ``int``. Else BackendProtocolError names ``where``."""
    if not isinstance(answer, kind):
        raise BackendProtocolError(f"{where}: expected {_JSON[kind]} in the answer")
    return answer


async def none_if_404(call: Awaitable[T]) -> T | None:
    """The answer, or None if there is no such record."""
    try:
        return await call
    except BackendRejected as error:
        if error.status != 404:
            raise
        return None


def route(path: str) -> str:
    """The path without its ids, for messages and traces."""
    return "/".join(part if _ROUTE_WORD.fullmatch(part) else "{id}" for part in path.split("/"))


class JsonHttp:
    """A client for one server. Works on asyncio and trio; belongs to the event loop that first uses it.

    Args:
        url: the server's address, as :func:`check_url` returns it.
        backend: name of the backend, for errors.
        server: the product's name for the server, for errors.
        timeout_s: limit of each request, in seconds.
        connections: number of concurrent requests; further requests wait. None keeps httpx' 100.
        hints: HTTP status -> hint in errors, in place of the usual hint.
    """

    def __init__(
        self,
        url: str,
        *,
        backend: str,
        server: str = "server",
        timeout_s: float = 10.0,
        connections: int | None = None,
        hints: Mapping[int, str] | None = None,
    ) -> None:
        self.url = url
        self._backend = backend
        self._named = server
        self._hints = {**_HINTS, **(hints or {})}
        self._client = partial(
            http_client,
            url,
            backend=backend,
            timeout_s=timeout_s,
            limits=httpx.Limits(
                max_connections=connections or 100, max_keepalive_connections=connections or 20
            ),
        )
        self._pool: _Pool | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        retry_pause_s: float | None = None,
    ) -> JsonValue:
        """Send a request, and return the answer's JSON, or None for an empty answer.

        Args:
            path: from the root; the caller escapes ids in it.
            params: None values are left out.
            operation: the request's name in errors; by default method and path without ids.
            retry_pause_s: for requests that may be sent twice: seconds before the one retry after a 5xx (not
                501) or a lost connection. None: no retry.

        Raises:
            BackendError: by HTTP status, transport failure or unreadable answer.
            InputError: the body is not JSON, or ``path`` does not start with one slash.
        """
        if not path.startswith("/") or path.startswith("//"):
            raise InputError(
                f"path: must start with one '/', so that the key goes to this {self._named} alone"
            )
        operation = operation or f"{method} {route(path)}"
        given = {name: value for name, value in (params or {}).items() if value is not None}
        sent = {"headers": headers, "params": given or None, "json": json}
        try:
            return await self._send(operation, method, path, **sent)
        except BackendError as error:
            if retry_pause_s is None or not _may_pass(error):
                raise
            earlier = error
        await anyio.sleep(retry_pause_s)
        try:
            return await self._send(operation, method, path, **sent)
        except BackendError as error:
            error.after(earlier)
            raise

    async def _send(self, operation: str, method: str, path: str, **given: Any) -> JsonValue:
        try:
            async with self._connections() as pool:
                try:
                    request = pool.http.build_request(method, path, **given)
                except (TypeError, ValueError) as error:
                    raise InputError(f"{operation}: the request is not JSON with finite numbers") from error
                request.stream = _Body(request.content)
                response = await pool.http.send(request)
                pool.retired = pool.retired or _unhandled(response)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            failure = normalise_error(
                error, backend_name=self._backend, operation=operation, table=HTTPX_ERRORS
            )
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                failure.args = (f"{failure}: nobody answers at {self.url}",)
            raise failure from error
        if not response.is_success:
            raise self._refusal(response, operation)
        if not response.content:
            return None
        try:
            answer: JsonValue = json.loads(response.content, parse_constant=_no_constant)
            return answer
        except (ValueError, RecursionError) as error:
            raise BackendProtocolError(
                f"{self._backend}: {operation} answered HTTP {response.status_code}, but not with JSON; check the "
                "server's address",
                backend_name=self._backend,
                operation=operation,
                diagnostics={"exception": type(error).__name__},
            ) from error

    async def aclose(self) -> None:
        """Close the connections. Idempotent; a later call opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.http.aclose()

    def _connections(self) -> _Pool:
        if self._pool is None or self._pool.retired:
            warnings_only()  # httpx logs the address of every request
            self._pool = _Pool(self._client())
        return self._pool

    def _refusal(self, response: httpx.Response, operation: str) -> BackendError:
        status = response.status_code
        cause = httpx.HTTPStatusError(f"HTTP {status}", request=response.request, response=response)
        if response.has_redirect_location or status < 400:
            error: BackendError = BackendProtocolError(
                f"{self._backend}: {operation} answered with a redirect, which is not followed; "
                "configure the final address",
                backend_name=self._backend,
                operation=operation,
                diagnostics={"status": status},
                sent=status in _CARRIED_OUT,
            )
            error.__cause__ = cause
            return error
        error = normalise_error(cause, backend_name=self._backend, operation=operation, table=HTTPX_ERRORS)
        try:
            body = response.json()
        except (ValueError, RecursionError):
            body = None
        body = body if isinstance(body, dict) else {}
        error.diagnostics.update(_said(body))
        usual = "the {server} failed" if status >= 500 else "the {server} refused it"
        hint = self._hints.get(status, usual).format(server=self._named)
        if isinstance(body.get("error"), dict) and (reason := reason_in(body)) is not None:
            error.diagnostics["reason"] = reason
            if status == 429 or status not in self._hints:  # a provider says more than the number
                hint = reason
        if error.retry_after_s is not None:
            hint += f"; try again in {error.retry_after_s:.0f} s"
        named = "".join(
            f", {name} {error.diagnostics[name]}" for name in ("code", "fields") if name in error.diagnostics
        )
        error.args = (f"{self._backend}: {operation} answered HTTP {status}{named}: {hint}",)
        error.__cause__ = cause
        return error


class _Body(AsyncIterator[bytes], httpx.AsyncByteStream):
    """A request body that may be abandoned. httpx' own is a generator, and trio warns of abandoned ones."""

    def __init__(self, data: bytes) -> None:
        self._left = [data] if data else []

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class _Pool:
    """Connections that are closed together, after one broke: a server may reset it after a failure."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.users = 0
        self.retired = False

    async def __aenter__(self) -> Self:
        self.users += 1
        return self

    async def __aexit__(self, kind: object, error: object, where: object) -> None:
        self.users -= 1
        self.retired = self.retired or isinstance(error, httpx.HTTPError | httpx.StreamError)
        if self.retired and not self.users:
            with anyio.CancelScope(shield=True):
                await self.http.aclose()


def _may_pass(error: BackendError) -> bool:
    """Whether a retry may succeed: after a 5xx other than 501, or a lost answer."""
    if error.status is not None:
        return error.status >= 500 and error.status != 501
    return isinstance(error, BackendUnavailable) and error.sent


def _unhandled(response: httpx.Response) -> bool:
    """Whether the server had an unhandled failure: any 500 (Honcho's are JSON), or a 5xx without JSON."""
    status, kind = response.status_code, str(response.headers.get("content-type", ""))
    return status >= 500 and (status == 500 or "json" not in kind)


def _said(body: Mapping[str, Any]) -> dict[str, Any]:
    """The loggable parts of an error body: codes, field names and times. Its text repeats the request."""
    detail = body.get("detail")
    said: dict[str, Any] = {}
    code = detail.get("code") if isinstance(detail, dict) else body.get("error")
    if isinstance(code, str) and _NAME.match(code):
        said["code"] = code
    if isinstance(detail, list):
        paths = [problem.get("loc") for problem in detail if isinstance(problem, dict)]
        fields = {".".join(str(part) for part in path) for path in paths if isinstance(path, list)}
        said["fields"] = sorted(field for field in fields if _NAME.match(field))[:8]
    wait = body.get("retry_after")
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and math.isfinite(wait):
        said["retry_after_s"] = float(wait)
    return said


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
