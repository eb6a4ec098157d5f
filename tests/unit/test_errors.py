"""A native error maps to one class, keeps its cause, and shows no user text (DESIGN section 4)."""

import json
import socket

import httpx
import pytest
from pydantic import BaseModel

from memory import BackendError, BackendTimeout, BackendUnavailable
from memory.adapter import (
    HTTPX_ERRORS,
    BackendAuthError,
    BackendProtocolError,
    BackendRateLimited,
    BackendRejected,
    BaseAdapter,
    normalise_error,
)
from memory.contract.native_errors import NativeError, native_name

USER_TEXT = "my diary says sk-12345"


def http_error(status, **headers):
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    response = httpx.Response(status, headers=headers, text=USER_TEXT, request=request)
    return httpx.HTTPStatusError(USER_TEXT, request=request, response=response)


def chained(outer, cause):
    try:
        raise outer from cause
    except Exception as error:
        return error


def while_handling(outer, handled):
    try:
        try:
            raise handled
        except Exception:
            raise outer  # noqa: B904 (an SDK that forgets it)
    except Exception as error:
        return error


def answer_that_does_not_fit():
    class Answer(BaseModel):
        id: str

    try:
        Answer.model_validate({"id": None})
    except ValueError as error:
        return error


class LLMError(Exception):
    """How SDKs wrap: a class of their own, the transport's error as its cause."""


class NeighbourConnectionError(Exception):
    """Named like the builtin, and not derived from it: a name proves nothing."""


CASES = [
    (http_error(401), BackendAuthError),
    (http_error(403), BackendAuthError),
    (http_error(429), BackendRateLimited),
    (http_error(400), BackendRejected),
    (http_error(404), BackendRejected),
    (http_error(409), BackendRejected),
    (http_error(422), BackendRejected),
    (http_error(500), BackendUnavailable),
    (http_error(503), BackendUnavailable),
    (http_error(504), BackendTimeout),
    (httpx.ReadTimeout(USER_TEXT), BackendTimeout),
    (httpx.ConnectError(USER_TEXT), BackendUnavailable),
    (httpx.RemoteProtocolError(USER_TEXT), BackendUnavailable),
    (httpx.ReadError(USER_TEXT), BackendUnavailable),
    (httpx.WriteError(USER_TEXT), BackendUnavailable),
    (TimeoutError(USER_TEXT), BackendTimeout),
    (ConnectionResetError(USER_TEXT), BackendUnavailable),
    (NeighbourConnectionError(USER_TEXT), BackendError),
    (httpx.DecodingError(USER_TEXT), BackendProtocolError),
    (json.JSONDecodeError(USER_TEXT, "", 0), BackendProtocolError),
    (AttributeError(USER_TEXT), BackendProtocolError),
    (KeyError(USER_TEXT), BackendProtocolError),
    (answer_that_does_not_fit(), BackendProtocolError),
    (ValueError(USER_TEXT), BackendError),
    (RuntimeError(USER_TEXT), BackendError),
    (chained(LLMError(USER_TEXT), http_error(429)), BackendRateLimited),
    (chained(LLMError(USER_TEXT), chained(RuntimeError(USER_TEXT), httpx.ReadTimeout("x"))), BackendTimeout),
    (chained(http_error(422), TimeoutError("x")), BackendRejected),
    (chained(http_error(422), http_error(500)), BackendRejected),
    (while_handling(httpx.ReadTimeout("x"), httpx.ConnectError("x")), BackendTimeout),
    (while_handling(httpx.ReadTimeout("x"), http_error(404)), BackendTimeout),
    (while_handling(RuntimeError("x"), http_error(404)), BackendRejected),
]


@pytest.mark.parametrize(
    ("native", "kind"), CASES, ids=lambda value: getattr(value, "__name__", repr(value)[:40])
)
def test_a_native_error_maps_to_exactly_one_class(native, kind):
    error = normalise_error(native, backend_name="mem0", operation="Memory.search")
    assert type(error) is kind
    assert (error.backend_name, error.operation) == ("mem0", "Memory.search")
    shown = str(error) + json.dumps(error.diagnostics)
    assert USER_TEXT not in shown
    assert "Memory.search" in str(error)


def test_diagnostics_tell_what_is_safe_to_tell():
    native = chained(LLMError(USER_TEXT), http_error(429, **{"retry-after": "7"}))
    error = normalise_error(native, backend_name="mem0", operation="Memory.add")
    assert error.diagnostics["status"] == 429
    assert error.retry_after_s == 7.0
    assert error.diagnostics["causes"] == ["httpx.HTTPStatusError"]


def test_a_module_that_is_not_installed_is_named():
    try:
        import surely_not_installed  # noqa: F401
    except ImportError as error:
        wrapped = RuntimeError("sk-secret")
        wrapped.__cause__ = error
    error = normalise_error(wrapped, backend_name="mem0", operation="setup_scope")
    assert str(error) == "mem0: setup_scope failed (RuntimeError: surely_not_installed is not installed)"
    assert error.diagnostics["module"] == "surely_not_installed"
    assert error.ambiguous, "where it was raised is not known"
    assert not normalise_error(wrapped.__cause__, backend_name="mem0", operation="setup_scope").ambiguous


def test_a_code_that_holds_text_is_left_out():
    native = RuntimeError("x")
    native.code = USER_TEXT
    native.request_id = "req_123"
    error = normalise_error(native, backend_name="b", operation="o")
    assert "code" not in error.diagnostics
    assert error.diagnostics["request_id"] == "req_123"


@pytest.mark.parametrize(
    "native",
    [
        httpx.ReadTimeout("x"),
        TimeoutError("x"),
        ConnectionResetError("x"),
        httpx.RemoteProtocolError("x"),
        *map(http_error, (408, 500, 502, 503, 504)),
        json.JSONDecodeError("x", "", 0),
        httpx.DecodingError("x"),
        answer_that_does_not_fit(),
        ValueError("x"),
        KeyError("x"),
        AttributeError("x"),
        RuntimeError("nobody foresaw"),
        while_handling(httpx.ReadTimeout("x"), httpx.ConnectError("x")),
        chained(httpx.ReadTimeout("x"), httpx.ConnectError("x")),
        while_handling(http_error(502), http_error(401)),
        chained(LLMError("x"), httpx.ConnectError("x")),
        chained(LLMError("x"), http_error(422)),
        while_handling(RuntimeError("x"), http_error(404)),
    ],
    ids=repr,
)
def test_what_was_sent_and_not_definitely_refused_is_ambiguous(native):
    for table in ({}, HTTPX_ERRORS):
        error = normalise_error(native, backend_name="b", operation="o", table=table)
        assert error.ambiguous
        assert error.sent


@pytest.mark.parametrize(
    "native",
    [
        ConnectionRefusedError("x"),
        BlockingIOError("x"),
        socket.gaierror("x"),
        ModuleNotFoundError("x"),
        httpx.ConnectError("x"),
        httpx.ConnectTimeout("x"),
        httpx.PoolTimeout("x"),
        *map(http_error, (400, 401, 403, 404, 409, 413, 422, 429)),
        while_handling(httpx.ConnectError("x"), httpx.ReadTimeout("x")),
        chained(http_error(422), TimeoutError("x")),
    ],
    ids=repr,
)
def test_what_never_left_or_was_refused_is_not(native):
    table = HTTPX_ERRORS  # of an adapter whose writes are one request each
    assert not normalise_error(native, backend_name="b", operation="o", table=table).ambiguous


def test_without_a_table_only_what_python_itself_says_is_definite():
    assert not normalise_error(ConnectionRefusedError("x"), backend_name="b", operation="o").ambiguous
    for native in (httpx.ConnectError("x"), http_error(401), http_error(409)):
        assert normalise_error(native, backend_name="b", operation="o").ambiguous, (
            "of several requests of a write one was refused; what came of the others nobody says"
        )


def test_one_ambiguous_attempt_leaves_all_of_them_ambiguous():
    def lost():
        return BackendUnavailable("lost")

    def refused():
        return BackendUnavailable("refused", sent=False)

    assert refused().after(lost()).ambiguous
    assert lost().after(refused()).ambiguous
    assert not refused().after(refused()).ambiguous
    assert not BackendRejected("no").ambiguous
    assert BackendRejected("no").after(lost()).ambiguous


def test_an_error_that_words_itself_says_so():
    class Own(BackendError):
        def __init__(self):
            super().__init__("said")

    assert str(Own()) == "said"


def test_an_error_of_ours_passes_with_its_place_filled_in():
    error = BackendRejected("no")
    assert normalise_error(error, backend_name="b", operation="o") is error
    assert (error.backend_name, error.operation) == ("b", "o")


def test_a_circle_of_causes_ends():
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert type(normalise_error(first, backend_name="b", operation="o")) is BackendError


def test_what_was_being_handled_adds_nothing_to_an_error_with_a_status():
    """A client that tries an import first would have every refusal called a missing package."""

    class Refused(Exception):
        status_code = 503

    refused = Refused()
    refused.__context__ = ModuleNotFoundError(name="extra")
    table = {native_name(Refused): NativeError(sent=True)}
    failed = normalise_error(refused, backend_name="b", operation="o", table=table)
    assert (type(failed), failed.diagnostics["status"]) == (BackendUnavailable, 503)
    assert "module" not in failed.diagnostics


def test_the_lowest_status_of_a_refusal_decides_before_what_it_was_raised_from():
    class Refused(Exception):
        status_code = 400

    refused = Refused()
    refused.__cause__ = ConnectionRefusedError("an earlier attempt")
    assert type(normalise_error(refused, backend_name="b", operation="o")) is BackendRejected


def test_a_reset_that_broke_off_says_so_and_may_have_removed_something():
    """Swallowed, it would read as done; as refused, as if nothing were gone."""
    error = BackendRejected("no", sent=False)
    with pytest.raises(BackendRejected) as raised, BaseAdapter.clearing():
        raise error
    assert raised.value is error
    assert error.ambiguous
