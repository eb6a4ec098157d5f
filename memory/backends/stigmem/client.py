"""Scopes on Stigmem nodes: which node, which generation, and in which tenant. The generation is a fact on the
node, under a source of its own: it survives restarts and is the same for every host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import anyio

from memory import BackendError, ConfigError, MemoryScope, ScopeError
from memory.adapter import BackendAuthError, release
from memory.backends.stigmem.keys import OpenScope, ScopeIds, TenantKeys, scope_id
from memory.backends.stigmem.options import SCOPE_FIELD, NodeAddress, StigmemOptions
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import FactValue, NewFact

T = TypeVar("T")
_GENERATION = "x-memslot:generation"


class Scopes:
    """Finds, makes and renews the scopes of one configuration; ``owner`` names it in errors."""

    def __init__(self, options: StigmemOptions, owner: str) -> None:
        self._options = options
        self._owner = owner
        self._nodes: dict[str, StigmemNode] = {}
        self._opened: dict[str, OpenScope] = {}
        self._trials: dict[str, NodeAddress] = {}
        self._keys: TenantKeys | None = None
        if options.isolation == "tenant":
            if options.api_key is None:
                raise ConfigError(
                    f"{owner}.api_key: is missing; isolation: tenant needs an admin key of the node; "
                    "give one, or set isolation: node"
                )
            self._keys = TenantKeys(options.api_key.get_secret_value(), owner)

    def address(self, scope: MemoryScope) -> NodeAddress:
        options = self._options
        if options.isolation == "node":
            listed = {**self._trials, **options.nodes}
            if scope.label in listed:
                return listed[scope.label]
            if SCOPE_FIELD not in options.url and not options.allow_sharing:
                raise ScopeError(
                    f"{self._owner}.nodes: lists no node for scope {scope.label}; add it, or put {{scope}} into url"
                )
        return NodeAddress(url=options.url.replace(SCOPE_FIELD, scope_id(scope)))

    def allocate_probe_scopes(self, scopes: Sequence[MemoryScope]) -> int:
        """Lend synthetic scopes the listed nodes, one each; a mark keeps their facts from those of the owners."""
        options = self._options
        if options.isolation != "node" or SCOPE_FIELD in options.url or options.allow_sharing:
            return len(scopes)
        nodes = options.nodes.values()
        self._trials = {scope.label: node for scope, node in zip(scopes, nodes, strict=False)}
        return len(self._trials)

    def known_nodes(self) -> list[StigmemNode]:
        """The only node, those listed, and those of scopes in use."""
        listed = list(self._options.nodes.values())
        if SCOPE_FIELD not in self._options.url and not listed:
            listed = [NodeAddress(url=self._options.url)]
        for address in listed:
            self._node(address)
        return list(self._nodes.values())

    async def call(self, scope: MemoryScope, native: Callable[[OpenScope], Awaitable[T]]) -> T:
        """``native`` with the scope as it is now, also where another process has reset it. A tenant's key ends
        with its generation, so the call itself is refused. Without tenants nothing would fail, and what is
        written to an old generation is lost: the node is asked for the generation first."""
        opened = await self.open(scope, again=self._keys is None)
        try:
            return await native(opened)
        except BackendAuthError as error:
            if self._keys is None or error.status != 401:
                raise
            ended = error
        self._opened.pop(scope_id(scope), None)
        try:
            return await native(await self.open(scope))
        except BackendError as error:
            error.after(ended)
            raise

    async def open(self, scope: MemoryScope, *, again: bool = False) -> OpenScope:
        """The scope, made where there is none; ``again`` asks the node for the generation even of a known one."""
        known = self._opened.get(scope_id(scope))
        if known is not None and not again:
            return known
        node = self._node(self.address(scope))
        newest = await self._ids(node, scope)
        if known is not None and known.ids == newest:
            return known
        return await self._enter(node, newest)

    async def renew(self, scope: MemoryScope, old: OpenScope) -> OpenScope:
        node = self._node(self.address(scope))
        ids = ScopeIds(old.ids.scope_id, old.ids.generation + 1, old.ids.marked)
        value = FactValue(type="number", v=ids.generation)
        self._opened.pop(ids.scope_id, None)  # should one of these fail, the next use asks for the generation
        await node.assert_fact(
            NewFact(entity=ids.count, relation=_GENERATION, value=value, source=ids.counter, scope="local")
        )
        if self._keys is not None:
            await self._keys.drop(old.node, old.ids, old.key_id)
        return await self._enter(node, ids)

    async def leave(self, scope: str) -> None:
        """Delete our key of a scope, given by its id; the next use makes another."""
        opened = self._opened.pop(scope, None)
        if opened is not None and opened.key_id is not None and self._keys is not None:
            with suppress(BackendError):
                await self._keys.drop(opened.node, opened.ids, opened.key_id)

    async def aclose(self) -> None:
        """Delete our keys, as far as the nodes answer soon, and close every connection."""
        nodes, self._nodes = list(self._nodes.values()), {}
        opened, self._opened = list(self._opened.values()), {}

        async def leave_all() -> None:
            if self._keys is not None:
                with anyio.move_on_after(5.0):
                    await self._keys.drop_all(opened)

        await release(leave_all, *(node.aclose for node in nodes))

    def _node(self, address: NodeAddress) -> StigmemNode:
        if address.url not in self._nodes:
            key = address.api_key or self._options.api_key
            self._nodes[address.url] = StigmemNode(
                address.url,
                key.get_secret_value() if key else None,
                timeout_s=self._options.timeout_s,
                retry_pause_s=self._options.retry_pause_s,
            )
        return self._nodes[address.url]

    async def _ids(self, node: StigmemNode, scope: MemoryScope) -> ScopeIds:
        first = ScopeIds(scope_id(scope), 0, marked=self._keys is None)
        facts = await node.query(source=first.counter, relation=_GENERATION, scope="local")
        numbers = [int(fact.value.v) for fact in facts if isinstance(fact.value.v, (int, float))]
        return ScopeIds(first.scope_id, max(numbers, default=0), first.marked)

    async def _enter(self, node: StigmemNode, ids: ScopeIds) -> OpenScope:
        opened = OpenScope(ids, *(await self._keys.enter(node, ids) if self._keys else (node,)))
        self._opened[ids.scope_id] = opened
        return opened
