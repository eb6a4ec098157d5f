"""What a Stigmem node answered: its JSON, or its failure as one of our errors.

Error bodies come in four shapes (``detail`` as text, as ``{code, message}`` or as pydantic's list; the quota's own
object; plain text). Codes, field names and times may be logged; the text itself echoes what was sent, so it
stays in the error's cause.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import httpx

from memory import BackendError, BackendProtocolError, normalise_error

__all__ = ["BACKEND", "content", "is_json", "mapping", "may_pass", "route", "rows"]

BACKEND = "stigmem"
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_HINTS = {
    401: "the API key is missing, wrong or expired",
    403: "the API key may not do this",
    404: "there is no such route or record",
    413: "the request is too large",
    422: "the node refused the request's form",
    429: "the quota is used up",
    501: "the node lacks the plugin this needs",
}
_ROUTE_WORD = re.compile(r"|\.well-known|v\d|[a-z]{1,20}(?:-[a-z]{1,20}){0,2}")


def may_pass(error: BackendError) -> bool:
    """Whether the failure may pass by itself: 5xx, or an answer that was lost on the way."""
    status = error.diagnostics.get("status")
    if status is not None:
        return bool(status >= 500 and status != 501)
    return error.ambiguous and not isinstance(error.__cause__, httpx.TimeoutException)


def content(response: httpx.Response, operation: str) -> Any:
    """The answer's JSON.

    Raises:
        BackendError: an error status, a redirect (never followed: it would carry the key elsewhere), or no JSON.
    """
    if not response.is_success:
        raise _refusal(response, operation)
    if not response.content:
        return None
    try:
        return json.loads(response.content, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BackendProtocolError(
            f"{BACKEND}: {operation} answered HTTP {response.status_code}, but not with JSON",
            backend_name=BACKEND,
            operation=operation,
            diagnostics={"exception": type(error).__name__},
        ) from error


def _refusal(response: httpx.Response, operation: str) -> BackendError:
    """An error answer as one of ours, chained to httpx's; the node's own words stay in the latter."""
    status = response.status_code
    cause = httpx.HTTPStatusError(f"HTTP {status}", request=response.request, response=response)
    if response.has_redirect_location or status < 400:
        error: BackendError = BackendProtocolError(
            f"{BACKEND}: {operation} answered with a redirect, which is not followed; configure the final address",
            backend_name=BACKEND,
            operation=operation,
            diagnostics={"status": status},
        )
        error.__cause__ = cause
        return error
    error = normalise_error(cause, backend_name=BACKEND, operation=operation)
    error.diagnostics.update(_said(response))
    hint = _HINTS.get(status, "the node failed" if status >= 500 else "the node refused it")
    if error.retry_after_s is not None:
        hint += f"; try again in {error.retry_after_s:.0f} s"
    told = "".join(
        f", {name} {error.diagnostics[name]}" for name in ("code", "fields") if name in error.diagnostics
    )
    error.args = (f"{BACKEND}: {operation} answered HTTP {status}{told}: {hint}",)
    error.__cause__ = cause
    return error


def _said(response: httpx.Response) -> dict[str, Any]:
    """What of an error body may be logged: codes, field names, times; never its text, which echoes ours."""
    try:
        body = response.json()
    except ValueError:
        return {}
    body = body if isinstance(body, dict) else {}
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def is_json(response: httpx.Response) -> bool:
    """Whether the answer says it is JSON; a node's unhandled failure is plain text."""
    return "json" in str(response.headers.get("content-type", ""))


def route(path: str) -> str:
    """The path with its ids taken out, for messages and traces."""
    return "/".join(part if _ROUTE_WORD.fullmatch(part) else "{id}" for part in path.split("/"))


def mapping(answer: Any, operation: str) -> dict[str, Any]:
    """The answer, known to be an object; BackendProtocolError otherwise."""
    if not isinstance(answer, dict):
        raise BackendProtocolError(
            f"{BACKEND}: {operation} did not answer with an object", backend_name=BACKEND
        )
    return cast("dict[str, Any]", answer)


def rows(answer: Mapping[str, Any], name: str, operation: str) -> list[Any]:
    """The list under ``name``; BackendProtocolError where there is none."""
    found = answer.get(name)
    if not isinstance(found, list):
        raise BackendProtocolError(
            f"{BACKEND}: {operation} did not answer with a list of {name}", backend_name=BACKEND
        )
    return found
