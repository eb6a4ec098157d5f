"""Finds the node, generation and tenant of each scope.

The generation is a fact on the node, under a separate source, so it survives restarts and is the same for all
hosts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import anyio

from memory import BackendError, ConfigError, MemoryScope
from memory.adapter import BackendAuthError, BackendRejected, release
from memory.adapter.http import expect
from memory.backends.stigmem.options import SCOPE_FIELD, StigmemOptions
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import FactValue, NewFact

# The host part of memslot's URIs. Not the node's address, because a recall could match its name and port.
AUTHORITY = "memslot"


def scope_id(scope: MemoryScope) -> str:
    """160 bits of a hash of the scope's unambiguous label. They fit tenant ids and host names."""
    return f"s-{_digest(scope.label, 40)}"


@dataclass(frozen=True)
class ScopeIds:
    """The names of one generation. A reset begins a new generation, because no route deletes facts."""

    scope_id: str
    generation: int  # number of resets
    # A recall must ask for the mark, because a node without tenants may hold facts of earlier generations,
    # other clients and other scopes. If it holds none, the mark does not change the rank (bm25).
    marked: bool

    @property
    def name(self) -> str:
        """The tenant's id, and the scope label of every fact."""
        return f"{self.scope_id}-g{self.generation}"

    @property
    def mark(self) -> str:
        """One FTS5 word, which only the entities of this generation's facts contain."""
        return _digest(self.name, 32)

    @property
    def source(self) -> str:
        return f"stigmem://{AUTHORITY}/scope/{self.mark}"

    def message(self, event_id: str, index: int) -> str:
        """The entity of a message. A hash, because the node also matches the words in entities."""
        return f"stigmem://{AUTHORITY}/{self.mark}/{_digest(json.dumps([event_id, index]), 32)}"

    @property
    def counter(self) -> str:
        """The source of facts that count the scope's generations."""
        return f"stigmem://{AUTHORITY}/generations/{self.scope_id}"


def _digest(text: str, letters: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:letters]


_ROUTE = "/v1/auth/keys"


@dataclass(frozen=True)
class OpenScope:
    """A scope that is in use. ``key_id`` names the API key to delete when it closes, if there is one."""

    ids: ScopeIds
    node: StigmemNode
    key_id: str | None = None


class TenantKeys:
    """One key for each scope and month, derived from the admin key, so that no key is stored.

    A node tries every live key on each request, so a closing slot deletes the keys that it made. A process that
    still uses one makes it anew after its next call is refused. A killed process leaves keys, which expire
    after 90 days.
    """

    def __init__(self, admin_key: str, owner: str) -> None:
        self._secret = admin_key.encode()
        self._owner = owner
        self._separating: set[str] = set()  # nodes known to separate tenants

    async def enter(self, admin: StigmemNode, ids: ScopeIds) -> tuple[StigmemNode, str | None]:
        """Return a client with the tenant's key, and the key's id if this process must delete it."""
        raw_key = self._derived(f"{ids.name}/{datetime.now(UTC):%Y-%m}")
        key_id = await self._register(admin, ids, raw_key)
        node = admin.with_key(raw_key)
        if admin.url not in self._separating:
            if (await node.me()).get("tenant_id") != ids.name:
                await self.drop_all([OpenScope(ids, node, key_id)])
                raise ConfigError(
                    f"{self._owner}.isolation: the node puts every key into one tenant, so scopes would share "
                    "memory; turn its multi-tenant plugin on, or set isolation: node"
                )
            self._separating.add(admin.url)
        return node, key_id

    async def drop_tenant(self, node: StigmemNode, ids: ScopeIds) -> None:
        """Delete all keys of a tenant. The newest, in use here, goes last."""
        found = expect(list, await node.request("GET", _ROUTE), f"stigmem: GET {_ROUTE}")
        for key in reversed(found):
            if expect(dict, key, f"stigmem: GET {_ROUTE}: a key").get("description") == _described(ids):
                await node.request("DELETE", f"{_ROUTE}/{key['id']}")

    async def drop_all(self, opened: Sequence[OpenScope]) -> None:
        """Delete the keys of these scopes. For each node, its first key deletes all, itself last.

        All keys belong to one agent, which may delete them. A node tries keys in the order of their creation:
        a request by the last of forty keys took thirty times as long.
        """
        ours = [scope for scope in opened if scope.key_id is not None]
        first = {scope.node.url: scope.node for scope in reversed(ours)}
        for scope in reversed(ours):
            with suppress(BackendError):
                await first[scope.node.url].request("DELETE", f"{_ROUTE}/{scope.key_id}")

    async def _register(self, admin: StigmemNode, ids: ScopeIds, raw_key: str) -> str | None:
        """Register a key and return its id, or None if it is already registered."""
        body = {
            "raw_key": raw_key,
            # One agent owns all keys, because a node lets only the owner list and delete them, not an admin.
            "entity_uri": f"stigmem://{AUTHORITY}/agent/{self._derived('agent')[:32]}",
            "permissions": ["read", "write"],
            "tenant_id": ids.name,
            "description": _described(ids),
        }
        try:
            return str((await admin.object("POST", _ROUTE, json=body)).get("id"))
        except BackendRejected as error:
            if error.status != 409:
                raise
            return None
        except BackendAuthError as error:
            if error.status != 403:
                raise
            why = "api_key: is no admin key, and isolation: tenant makes a key for each scope"
            if (await admin.well_known()).auth == "none":
                why = (
                    "isolation: the node runs without authentication, so it has no tenants; start it with "
                    "STIGMEM_AUTH_REQUIRED=true and the multi-tenant plugin, or set isolation: node"
                )
            raise ConfigError(f"{self._owner}.{why}") from error

    def _derived(self, purpose: str) -> str:
        return hmac.new(self._secret, purpose.encode(), hashlib.sha256).hexdigest()


def _described(ids: ScopeIds) -> str:
    return f"memslot {ids.name}"


T = TypeVar("T")
_GENERATION = "x-memslot:generation"


class Scopes:
    """Opens and renews the scopes of one configuration. ``owner`` names the configuration in errors."""

    def __init__(self, options: StigmemOptions, owner: str) -> None:
        self._options = options
        self._owner = owner
        self._nodes: dict[str, StigmemNode] = {}
        self._opened: dict[str, OpenScope] = {}
        self._keys: TenantKeys | None = None
        if options.isolation == "tenant":
            if options.api_key is None:
                raise ConfigError(
                    f"{owner}.api_key: is missing; isolation: tenant needs an admin key of the node; "
                    "give one, or set isolation: node"
                )
            self._keys = TenantKeys(options.api_key.get_secret_value(), owner)

    def url(self, scope: MemoryScope) -> str:
        """Return the address of a scope's node."""
        return self._options.url.replace(SCOPE_FIELD, scope_id(scope))

    def known_nodes(self) -> list[StigmemNode]:
        if SCOPE_FIELD not in self._options.url:
            self._node(self._options.url)
        return list(self._nodes.values())

    async def call(self, scope: MemoryScope, native: Callable[[OpenScope], Awaitable[T]]) -> T:
        """Call ``native`` with the scope's current generation, even if another process has reset the scope.

        A tenant's key ends with its generation, so a late call is refused and then repeated. Without tenants,
        a write to an old generation would be lost silently, so the node is asked for the generation first.
        """
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
        """The scope, created if needed. ``again`` asks the node for the generation even if it is known."""
        known = self._opened.get(scope_id(scope))
        if known is not None and not again:
            return known
        node = self._node(self.url(scope))
        first = ScopeIds(scope_id(scope), 0, marked=self._keys is None)
        facts = await node.query(source=first.counter, relation=_GENERATION, scope="local")
        numbers = [int(fact.value.v) for fact in facts if isinstance(fact.value.v, (int, float))]
        newest = replace(first, generation=max(numbers, default=0))
        if known is not None and known.ids == newest:
            return known
        return await self._enter(node, newest)

    async def renew(self, scope: MemoryScope, old: OpenScope) -> OpenScope:
        node = self._node(self.url(scope))
        ids = replace(old.ids, generation=old.ids.generation + 1)
        value = FactValue(type="number", v=ids.generation)
        began = f"stigmem://{AUTHORITY}/generation/{ids.scope_id}-{ids.generation}"
        self._opened.pop(ids.scope_id, None)  # if a call below fails, the next use asks for the generation
        fact = NewFact(entity=began, relation=_GENERATION, value=value, source=ids.counter, scope="local")
        await node.assert_fact(fact)
        if self._keys is not None:
            await self._keys.drop_tenant(old.node, old.ids)
        return await self._enter(node, ids)

    async def aclose(self) -> None:
        """Delete this process's keys if the nodes answer within five seconds, and close all connections."""
        nodes, self._nodes = list(self._nodes.values()), {}

        async def leave_all() -> None:
            if self._keys is not None:
                with anyio.move_on_after(5.0):
                    await self._keys.drop_all(list(self._opened.values()))
            self._opened.clear()

        await release(leave_all, *(node.aclose for node in nodes))

    def _node(self, url: str) -> StigmemNode:
        if url not in self._nodes:
            key = self._options.api_key
            self._nodes[url] = StigmemNode(
                url,
                key.get_secret_value() if key else None,
                timeout_s=self._options.timeout_s,
                retry_pause_s=self._options.retry_pause_s,
            )
        return self._nodes[url]

    async def _enter(self, node: StigmemNode, ids: ScopeIds) -> OpenScope:
        opened = OpenScope(ids, *(await self._keys.enter(node, ids) if self._keys else (node,)))
        self._opened[ids.scope_id] = opened
        return opened
