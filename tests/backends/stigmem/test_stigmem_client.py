"""The node client over real sockets: what it sends, what it refuses, when it tries again."""

import anyio
import pytest
from both_loops import anyio_backend as anyio_backend
from stigmem_node_model import ADMIN_KEY

from memory import BackendUnavailable, InputError
from memory.adapter import BackendAuthError, BackendProtocolError
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import FactValue, NewFact


def node_of(double, key=None):
    return StigmemNode(double.url, key, retry_pause_s=0.01)


def fact(number=1, value=None, **fields):
    return NewFact(
        **{
            "entity": f"stigmem://x/m/{number}",
            "relation": "memory:note",
            "value": value or FactValue(type="text", v=f"secret {number}"),
            "source": "stigmem://x/agent/t",
            "scope": "team",
            **fields,
        }
    )


async def test_every_type_comes_back(double):
    values = {
        "string": "a",
        "text": "b",
        "number": 2.5,
        "boolean": False,
        "datetime": "2026-01-02T03:04:05+00:00",
    }
    values |= {"ref": "stigmem://x/y/z", "null": None}
    async with node_of(double) as node:
        for number, (kind, v) in enumerate(values.items()):
            stored = await node.assert_fact(fact(number, FactValue(type=kind, v=v)))
            assert (await node.get_fact(stored.id)).value.v == v, kind
        assert len(await node.query(scope="team")) == len(values)


async def test_a_redacted_ref_and_unknown_fields_are_tolerated(double):
    double.node.add(
        "default", entity="handoff:1", relation="intent:handoff_to", value={"type": "ref", "v": "agent:x"},
        source="agent:y", confidence=1.0, scope="company", derived_from=None, hlc=None,
    )  # fmt: skip
    async with node_of(double) as node:
        (found,) = await node.query(relation="intent:handoff_to")
    assert found.sanitizer_redacted
    assert found.value.v is None


async def test_a_query_never_pages(double):
    async with node_of(double) as node:
        for number in range(12):
            await node.assert_fact(fact(number))
        assert len(await node.query(source="stigmem://x/agent/t")) == 12
        for limit in (0, 501):
            with pytest.raises(InputError, match="limit"):
                await node.query(limit=limit)
    asked = [request for request in double.requests if request.method == "GET"]
    assert [request.params["limit"] for request in asked] == ["500"]
    assert not any("cursor" in request.params for request in double.requests)


async def test_the_key_goes_to_the_configured_origin_alone(tenant_double):
    async with node_of(tenant_double, ADMIN_KEY) as node:
        assert (await node.me())["tenant_id"] == "default"
        for path in ("//evil.example/v1/me", "http://evil.example/v1/me", "v1/me", ""):
            with pytest.raises(InputError, match="path"):
                await node.request("GET", path)
        tenant_double.faults.add("redirect", times=None)
        before = len(tenant_double.requests)
        with pytest.raises(BackendProtocolError, match="redirect"):
            await node.me()
        assert len(tenant_double.requests) == before + 1
        tenant_double.faults.clear()
        with pytest.raises(BackendAuthError, match="wrong or expired"):
            await node.with_key("another").me()


async def test_an_answer_of_another_shape_is_no_answer(double, monkeypatch):
    async with node_of(double) as node:
        for answer in ([], {"facts": None}, {"facts": [1]}, {"facts": [{"fact": None}]}, None):

            async def other(*_, answer=answer, **__):
                return answer

            monkeypatch.setattr(node, "request", other)
            with pytest.raises(BackendProtocolError):
                await node.recall("a", scope="team")
            with pytest.raises(BackendProtocolError):
                await node.query()


async def test_nobody_listens():
    async with StigmemNode("http://127.0.0.1:9", retry_pause_s=60) as node:
        with anyio.fail_after(50), pytest.raises(BackendUnavailable) as raised:
            await node.me()
    assert not raised.value.sent, "what was never sent is not ambiguous"


async def test_a_cancelled_call_leaves_the_client_usable(double):
    async with node_of(double) as node:
        double.faults.add("late", delay_s=0.2)
        with anyio.move_on_after(0.05) as scope:
            await node.recall("a" * 100_000, scope="team")
        assert scope.cancelled_caught
        await node.me()


async def test_a_contradicted_fact_does_not_hide_others_behind_the_limit(double):
    """A node drops contradicted facts after its limit, so three may be none."""
    async with node_of(double) as node:
        for number in range(3):
            await node.assert_fact(fact(number))
        for word in ("a", "b", "c"):
            await node.assert_fact(fact(9, FactValue(type="text", v=word)))
        assert len(await node.query(relation="memory:note", scope="team", limit=3)) == 3
