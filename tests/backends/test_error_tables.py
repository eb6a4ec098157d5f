"""What each backend says its SDK's exceptions mean, held against the SDKs' real trees of exceptions."""

import importlib
import inspect

import pytest
from backends import missing_is_none

from memory import BackendError
from memory.adapter import HTTPX_ERRORS, OPENAI_ERRORS, BackendRejected, NativeError, normalise_error
from memory.contract.native_errors import _meaning, native_name

MEM0 = missing_is_none("mem0.translate:ERRORS") or {}
GRAPHITI = missing_is_none("graphiti.translate:ERRORS") or {}
TABLES = {
    "httpx": HTTPX_ERRORS,
    "openai": OPENAI_ERRORS,
    "mem0": MEM0,
    "graphiti": GRAPHITI,
}
TREES = [
    ("httpx", "httpx"),
    ("openai", "openai"),
    ("mem0", "openai"),
    ("mem0", "mem0.exceptions"),
    ("mem0", "qdrant_client.http.exceptions"),
    ("mem0", "psycopg.errors"),
    ("mem0", "psycopg_pool"),
    ("mem0", "sqlite3"),
    ("graphiti", "graphiti_core.errors"),
    ("graphiti", "graphiti_core.llm_client.errors"),
    ("graphiti", "neo4j.exceptions"),
    ("graphiti", "redis.exceptions"),
]
LEFT_OUT = {
    # Misuse of a client, which no call of ours makes.
    "httpx.CookieConflict", "httpx.StreamError", "httpx.HTTPError", "httpx.RequestError",
    "openai.InvalidWebhookSignatureError",
    "sqlite3.Warning", "psycopg.Warning", "psycopg.Rollback",
    "neo4j.exceptions.GqlError",
    "redis.exceptions.ChildDeadlockedError", "redis.exceptions.RedisClusterException",
    "redis.exceptions.IncorrectPolicyType",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "native"), [(name, native) for name, table in TABLES.items() for native in table]
)
def test_every_type_of_a_table_is_there_under_that_name(name, native):
    module, _, attribute = native.rpartition(".")
    kind = getattr(pytest.importorskip(module), attribute)
    assert issubclass(kind, Exception)
    assert native_name(kind) == native, "an exception is known by the module that it names itself"


@pytest.mark.parametrize(("name", "module"), TREES)
def test_every_exception_of_a_library_has_a_meaning_or_is_left_out_by_name(name, module):
    pytest.importorskip(module)
    if not TABLES[name]:
        pytest.skip(f"memory.backends.{name} was removed")
    listed = dict(vars(importlib.import_module(module)))
    kinds = {kind for kind in listed.values() if inspect.isclass(kind) and issubclass(kind, Exception)}
    own = {kind for kind in kinds if kind.__module__.split(".")[0] == module.split(".")[0]}
    assert own
    without = {
        native_name(kind)
        for kind in own
        if _meaning(kind, TABLES[name]) is None
        and not any(native_name(base) in LEFT_OUT for base in kind.__mro__)
    }
    assert without == set()


# A store refuses every vector of another length, and so the first row of an add.
REFUSED_AT_ONCE = {
    "chromadb.errors.InvalidArgumentError",
    "chromadb.errors.InvalidDimensionException",
    "psycopg.errors.DataException",
    "psycopg_pool.PoolTimeout",  # no connection for the one statement of an add
}


def test_no_type_of_an_embedded_library_says_that_nothing_was_stored():
    """An add of mem0 stores one memory after the other, and an episode of Graphiti takes many calls."""
    for table in (MEM0, GRAPHITI, OPENAI_ERRORS):
        for native, meaning in table.items():
            if native in REFUSED_AT_ONCE:
                continue
            assert meaning.sent is not False, native
            assert meaning.sent or (meaning.kind is not None and meaning.kind.sent), native


class CoauthorLookupError(Exception):
    """Neither a failed login nor a refusal, whatever its name has in it."""


class QuotationMarkError(Exception):
    """Nor a rate limit."""


class RefusedStatusError(Exception):
    status_code = 403


@pytest.mark.parametrize("kind", [CoauthorLookupError, QuotationMarkError, RefusedStatusError])
def test_a_type_in_no_table_leaves_a_write_open_whatever_its_name_or_status(kind):
    failure = normalise_error(kind("x"), backend_name="b", operation="o")
    assert failure.ambiguous
    if kind is not RefusedStatusError:
        assert type(failure) is BackendError


def test_a_relative_of_a_refusal_is_none_itself():
    """What a subclass adds may happen after the request was carried out."""

    class Refused(Exception):
        pass

    class Later(Refused):
        pass

    table = {native_name(Refused): NativeError(BackendRejected)}
    for kind, ambiguous in ((Refused, False), (Later, True)):
        failure = normalise_error(kind("x"), backend_name="b", operation="o", table=table)
        assert failure.ambiguous is ambiguous
