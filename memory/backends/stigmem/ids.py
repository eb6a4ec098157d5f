"""Scopes on Stigmem nodes: which node, tenant, key and generation a memory has.

Facts are immutable and no route deletes them, so a reset begins a new generation: a new tenant, or on a node
without tenants a new mark. The generation is itself a fact on the node, under a source of its own, so it survives
restarts and is the same for every host. The key of a tenant is derived from the admin key, so none is stored.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio

from memory import BackendError, ConfigError, MemoryScope, ScopeError
from memory.adapter import BackendAuthError, BackendProtocolError, BackendRejected
from memory.backends.stigmem.options import SCOPE_FIELD, NodeAddress, StigmemOptions
from memory.stigmem.answers import mapping
from memory.stigmem.client import StigmemNode
from memory.stigmem.facts import FactValue, NewFact, build_uri

__all__ = ["AUTHORITY", "StigmemScope", "Scopes", "scope_id"]

AUTHORITY = "memslot"
"""The host part of our URIs. Not the node's: its name and port would be words that a recall can match."""

_GENERATION = "x-memslot:generation"
_ROTATIONS = 64  # keys live 90 days, so this lasts 15 years
_DROP_S = 5.0


def scope_id(scope: MemoryScope) -> str:
    """``s-`` and 160 bits of the scope's unambiguous label: fits tenant ids and host names alike."""
    return "s-" + hashlib.sha256(scope.label.encode()).hexdigest()[:40]


@dataclass(frozen=True)
class StigmemScope:
    """Where a scope's memory lives now.

    Attributes:
        scope_id: the scope, whatever its generation.
        generation: how often it was reset.
        node: asked with the scope's own key.
        marked: a recall must ask for the mark, because a node without tenants may hold other facts: of earlier
            generations, of other clients, of other scopes. Where it holds none, the mark costs no rank (bm25).
        key_id: of the tenant's key, where it was made by this process.
    """

    scope_id: str
    generation: int
    node: StigmemNode
    marked: bool
    key_id: str | None = None

    @property
    def name(self) -> str:
        """Of this generation; the tenant's id, and the label of every row."""
        return f"{self.scope_id}-g{self.generation}"

    @property
    def mark(self) -> str:
        """One word for FTS5 that stands in the entity of every fact of this generation, and in no other."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:32]

    @property
    def source(self) -> str:
        """The source of every fact of this generation."""
        return f"stigmem://{AUTHORITY}/scope/{self.mark}"


class Scopes:
    """Finds, makes and renews homes.

    Args:
        options: the plugin's block.
        owner: names the block in errors, such as ``memory.backends.stigmem``.

    Raises:
        ConfigError: ``isolation: tenant`` without a key.
    """

    def __init__(self, options: StigmemOptions, owner: str) -> None:
        if options.isolation == "tenant" and options.api_key is None:
            raise ConfigError(
                f"{owner}.api_key: is missing; isolation: tenant needs an admin key of the node; "
                "give one, or set isolation: node"
            )
        self._options = options
        self._owner = owner
        self._nodes: dict[str, StigmemNode] = {}
        self._homes: dict[str, StigmemScope] = {}
        self._trials: dict[str, NodeAddress] = {}
        self._tenants_kept_apart: set[str] = set()  # nodes seen to do so

    def address(self, scope: MemoryScope) -> NodeAddress:
        """The node of a scope.

        Raises:
            ScopeError: ``nodes`` does not list the scope, and ``url`` does not serve it either.
        """
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

    def place_trials(self, scopes: Sequence[MemoryScope]) -> int:
        """Lend synthetic scopes the listed nodes, one each; a mark keeps their facts from those of the owners."""
        if (
            self._options.isolation != "node"
            or SCOPE_FIELD in self._options.url
            or self._options.allow_sharing
        ):
            return len(scopes)
        nodes = self._options.nodes.values()
        self._trials = {scope.label: node for scope, node in zip(scopes, nodes, strict=False)}
        return len(self._trials)

    def probes(self) -> list[StigmemNode]:
        """The nodes known so far: the only one, those listed, and those of scopes in use."""
        listed = list(self._options.nodes.values())
        if SCOPE_FIELD not in self._options.url and not listed:
            listed = [NodeAddress(url=self._options.url)]
        for address in listed:
            self._node(address)
        return list(self._nodes.values())

    async def enter(self, scope: MemoryScope, *, again: bool = False) -> StigmemScope:
        """The scope's home, made where there is none.

        Args:
            again: ask the node for the generation even where a home is known: another host may have reset it.

        Raises:
            ConfigError: the key is no admin key, or the node puts every key into one tenant.
            BackendError: the node failed.
        """
        known = self._homes.get(scope_id(scope))
        if known is not None and not again:
            return known
        node = self._node(self.address(scope))
        generation = await self._generation(node, scope)
        if known is not None and known.generation == generation:
            return known
        return await self._settle(scope, node, generation)

    async def renew(self, scope: MemoryScope, old: StigmemScope) -> StigmemScope:
        """End a generation and begin the next."""
        node = self._node(self.address(scope))
        await node.assert_fact(_generation_fact(old.scope_id, old.generation + 1))
        if self._options.isolation == "tenant":
            await _drop_keys(old)
        return await self._settle(scope, node, old.generation + 1)

    def forget(self, scope: MemoryScope) -> None:
        """The scope's key works no longer; the next ``enter`` makes or finds another."""
        self._homes.pop(scope_id(scope), None)

    async def aclose(self) -> None:
        """Delete the keys made here, as far as the nodes answer soon, and close every connection. Idempotent.

        A node tries every live key on each request, so none should outlive its use; opening again makes them anew.
        """
        with anyio.move_on_after(_DROP_S):
            for home in self._homes.values():
                if home.key_id is not None:
                    with suppress(BackendError):
                        await _drop_keys(home)
        self._homes.clear()
        while self._nodes:
            _, node = self._nodes.popitem()
            await node.aclose()

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

    async def _generation(self, node: StigmemNode, scope: MemoryScope) -> int:
        facts = await node.query(
            source=_generation_source(scope_id(scope)), relation=_GENERATION, scope="local"
        )
        numbers = [fact.value.v for fact in facts]
        return max((int(one) for one in numbers if isinstance(one, (int, float))), default=0)

    async def _settle(self, scope: MemoryScope, node: StigmemNode, generation: int) -> StigmemScope:
        tenant = self._options.isolation == "tenant"
        home = StigmemScope(scope_id(scope), generation, node, marked=not tenant)
        if tenant:
            home = await self._tenant(home)
        self._homes[home.scope_id] = home
        return home

    async def _tenant(self, home: StigmemScope) -> StigmemScope:
        """The home in a tenant of its own, with a key that is made where it does not exist."""
        assert self._options.api_key is not None
        secret = self._options.api_key.get_secret_value().encode()
        for rotation in range(_ROTATIONS):
            raw_key = hmac.new(secret, f"{home.name}/{rotation}".encode(), hashlib.sha256).hexdigest()
            key_id = await self._make_key(home, raw_key)
            tenant = replace(home, node=home.node.with_key(raw_key), key_id=key_id)
            if key_id is not None and home.node.url in self._tenants_kept_apart:
                return tenant
            try:
                who = await tenant.node.me()
            except BackendAuthError:
                if key_id is not None:
                    raise
                continue  # this one has expired
            if who.get("tenant_id") == home.name:
                self._tenants_kept_apart.add(home.node.url)
                return tenant
            await _drop_keys(tenant)
            raise ConfigError(
                f"{self._owner}.isolation: the node puts every key into one tenant, so scopes would share memory; "
                "turn its multi-tenant plugin on, or set isolation: node"
            )
        raise BackendProtocolError("stigmem: every key of this scope has expired; give another admin key")

    async def _make_key(self, home: StigmemScope, raw_key: str) -> str | None:
        """Register a key of the home's tenant and return its id; None where it is registered already."""
        body = {
            "raw_key": raw_key,
            "entity_uri": build_uri(AUTHORITY, "agent", home.mark),
            "permissions": ["read", "write"],
            "tenant_id": home.name,
            "description": "memslot scope",
        }
        try:
            made = mapping(await home.node.request("POST", "/v1/auth/keys", json=body), "POST /v1/auth/keys")
        except BackendRejected as error:
            if error.diagnostics.get("status") != 409:
                raise
            return None
        except BackendAuthError as error:
            if error.diagnostics.get("status") != 403:
                raise
            if (await home.node.well_known()).auth == "none":
                raise ConfigError(
                    f"{self._owner}.isolation: the node runs without authentication, so it has no tenants; start "
                    "it with STIGMEM_AUTH_REQUIRED=true and the multi-tenant plugin, or set isolation: node"
                ) from error
            raise ConfigError(
                f"{self._owner}.api_key: is no admin key, and isolation: tenant makes a key for each scope"
            ) from error
        return str(made.get("id"))


async def _drop_keys(home: StigmemScope) -> None:
    """Delete the key of a tenant, or all where ours was made elsewhere: the newest, which we use, last."""
    ids = [home.key_id] if home.key_id else []
    if not ids:
        ids = [str(key["id"]) for key in reversed(await home.node.request("GET", "/v1/auth/keys"))]
    for key_id in ids:
        await home.node.request("DELETE", f"/v1/auth/keys/{key_id}")


def _generation_source(name: str) -> str:
    return f"stigmem://{AUTHORITY}/generations/{name}"


def _generation_fact(name: str, generation: int) -> NewFact:
    return NewFact(
        entity=f"stigmem://{AUTHORITY}/generation/{name}-{generation}",
        relation=_GENERATION,
        value=FactValue(type="number", v=generation),
        source=_generation_source(name),
        scope="local",
    )
