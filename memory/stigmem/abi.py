"""The adapter ABI (Spec-19): what an agent reads from a Stigmem node at its start and writes during its work.

*Middleware* extends an agent that must also work without Stigmem. Its boot and :meth:`StigmemAbi.fire` never
raise, and without ``STIGMEM_URL`` it is silently off. A *process* exists only for Stigmem. Without a URL, it
refuses to start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import anyio

from memory import BackendError, ConfigError, InputError, MemslotError
from memory.adapter import BackendAuthError, BackendProtocolError
from memory.adapter.http import check_url
from memory.stigmem.client import MAX_LIMIT, NodeInfo, StigmemNode
from memory.stigmem.facts import Fact, build_uri, check_entity, check_uri, fold, render_context
from memory.stigmem.writers import Surfaces, Write, carry_out, is_escalation, log

Archetype = Literal["middleware", "process"]

_HANDOFF_DETAILS = frozenset({"intent:handoff_summary", "intent:context_ref", "intent:continuation"})


@dataclass(frozen=True)
class BootContext:
    """The facts that the boot handshake found (12.3.3)."""

    facts: list[Fact] = field(default_factory=list)  # without duplicates, in the order of the pulls
    summary: str = ""  # the facts as markdown for the system prompt (12.5)
    problems: tuple[str, ...] = ()  # one line per failed part, so that a failure does not look empty


class _Boot:
    """The context pulls of one boot (12.3.2). A failed pull does not prevent the next one."""

    def __init__(self, node: StigmemNode) -> None:
        self.node = node
        self.facts: dict[str, Fact] = {}
        self.problems: list[str] = []

    def warn(self, what: str, problem: str, level: int = logging.WARNING) -> None:
        self.problems.append(f"{what}: {problem}")
        log.log(level, "stigmem: %s: %s", what, problem)

    async def run(
        self, user: str, projects: Sequence[str], namespaces: Iterable[str] | None, addresses: frozenset[str]
    ) -> None:
        """Run the four pulls in order. Then pull the contents of handoffs, which are only URIs themselves."""
        found = await self._pull("user facts", entity=user, min_confidence=0.7)
        wanted = None if namespaces is None else frozenset(namespaces)
        self._keep(fact for fact in found if wanted is None or fact.relation.partition(":")[0] in wanted)
        for project in projects:
            constraint = {"entity": project, "relation": "roadmap:constraint", "min_confidence": 0.7}
            self._keep(await self._pull("project constraints", **constraint))
        found = await self._pull("handoffs", relation="intent:handoff_to", min_confidence=0.8)
        handoffs = [fact for fact in found if fact.value.v in addresses]
        self._keep(handoffs)
        # An envelope's priority uses the same relation, so these are removed before the cut to ten.
        found = await self._pull("escalations", relation="intent:escalation", min_confidence=0.8)
        self._keep([fact for fact in found if is_escalation(fact.entity)][:10])
        for handoff in handoffs[:10]:
            # The node regards several refs of one handoff as contradictions.
            asked = {"entity": handoff.entity, "include_contradicted": True}
            details = await self._pull("handoff details", **asked)
            self._keep(fact for fact in details if fact.relation in _HANDOFF_DETAILS)

    def _keep(self, facts: Iterable[Fact]) -> None:
        for fact in facts:
            self.facts.setdefault(fact.id, fact)

    async def _pull(self, what: str, **query: Any) -> list[Fact]:
        try:
            if "entity" in query:
                # To a blank entity, a node answers with everybody's facts. It knows no capitals.
                check_entity(query["entity"])
            found = await self.node.query(scope="company", **query)
        except InputError as error:
            self.warn(what, str(error))
            return []
        except BackendError as error:
            # By 12.6, 4xx is an empty answer. But a wrong key must be noticed, as it empties every boot.
            refused = (error.status or 500) < 500 and not isinstance(error, BackendAuthError)
            self.warn(what, str(error), logging.DEBUG if refused else logging.WARNING)
            return []
        if len(found) >= MAX_LIMIT:
            self.warn(what, f"the node answered with its most, {MAX_LIMIT} facts; older ones are left out")
        return found


class StigmemAbi:
    """One agent's side of the ABI.

    Args:
        url: the node. None turns middleware off.
        api_key: the bearer token.
        source: the agent's URI, formal or informal such as ``agent:openclaw``. The default is
            ``stigmem://{authority}/agent/memslot``.
        archetype: ``middleware`` or ``process``. With a wrong setting, middleware logs it and is off.
        timeout_s: seconds for one request.
        boot_timeout_s: seconds for the whole handshake. Facts read by then count.
        retry_pause_s: seconds before the one retry.

    Raises:
        ConfigError: a setting is wrong or a URL is missing, in a process.
    """

    def __init__(
        self,
        url: str | None,
        api_key: str | None = None,
        source: str | None = None,
        *,
        archetype: Archetype = "middleware",
        timeout_s: float = 10.0,
        boot_timeout_s: float = 20.0,
        retry_pause_s: float = 2.0,
    ) -> None:
        self.archetype = archetype
        self.problem: str | None = None
        self._url, self._api_key = url, api_key
        self._timeout_s, self._boot_timeout_s = timeout_s, boot_timeout_s
        self._retry_pause_s = retry_pause_s
        self._surfaces: Surfaces | None = None
        try:
            if url is not None:
                self._surfaces = _surfaces(url, source)
                self.open_node()  # checks the key; opens no connection
            elif archetype == "process":
                raise ConfigError("STIGMEM_URL: is not set; set it to the node, e.g. http://127.0.0.1:8765")
        except (InputError, ConfigError) as error:
            self._surfaces = None
            if archetype == "process":
                raise ConfigError(str(error)) from None
            self.problem = str(error)
            log.warning("stigmem: is off: %s", error)

    @classmethod
    def from_env(
        cls,
        archetype: Archetype = "middleware",
        environ: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """Use ``STIGMEM_URL``, ``STIGMEM_API_KEY``, ``STIGMEM_SOURCE_ENTITY`` (12.2). Empty means unset."""
        given = os.environ if environ is None else environ
        names = ("STIGMEM_URL", "STIGMEM_API_KEY", "STIGMEM_SOURCE_ENTITY")
        url, api_key, source = (given.get(name, "").strip() or None for name in names)
        return cls(url, api_key, source, archetype=archetype, **options)

    @property
    def surfaces(self) -> Surfaces:
        """The builders of this agent's writes, for :meth:`perform`.

        Raises:
            ConfigError: Stigmem is off.
        """
        if self._surfaces is None:
            raise ConfigError(self.problem or "STIGMEM_URL: is not set")
        return self._surfaces

    async def probe(self) -> NodeInfo:
        """Read the node's description.

        Raises:
            BackendError: the node fails, or omits a field that 12.3.1 requires.
        """
        async with self.open_node(retry_pause_s=0.0) as node:
            return await _described(node)

    async def boot(
        self,
        user_entity: str,
        project_entities: Sequence[str] = (),
        *,
        namespaces: Iterable[str] | None = ("preference",),
    ) -> BootContext:
        """Probe the node and, for middleware, pull the agent's context. Never raises.

        Args:
            user_entity: the user's URI.
            project_entities: URIs of projects, whose ``roadmap:constraint`` facts are pulled.
            namespaces: which namespaces of the user's facts to keep; None keeps all.
        """
        if self._surfaces is None:
            return BootContext(problems=(self.problem,) if self.problem else ())
        node = self.open_node(retry_pause_s=0.0)
        pulls = _Boot(node)
        try:
            with anyio.move_on_after(self._boot_timeout_s) as limit:
                async with node:
                    info = await _described(node)
                    if self.archetype == "middleware":
                        addresses = self._surfaces.addresses(urlsplit(info.node_url or "").netloc)
                        await pulls.run(user_entity, project_entities, namespaces, addresses)
            if limit.cancelled_caught:
                pulls.warn("boot", f"not finished within {self._boot_timeout_s:g} s")
        except MemslotError as error:
            level = logging.ERROR if self.archetype == "process" else logging.WARNING
            pulls.warn("node probe", str(error), level)
        except Exception as error:
            # The agent must start even after an unexpected error.
            pulls.warn("boot", f"unexpected {type(error).__name__}")
        facts = list(pulls.facts.values())
        summary = render_context(facts, user_entity, max_value_chars=4096)
        return BootContext(facts, summary, tuple(pulls.problems))

    def open_node(self, *, retry_pause_s: float | None = None) -> StigmemNode:
        """Create a client of the node. The caller closes it."""
        self.surfaces  # noqa: B018 (raises)
        pause = self._retry_pause_s if retry_pause_s is None else retry_pause_s
        return StigmemNode(self._url or "", self._api_key, timeout_s=self._timeout_s, retry_pause_s=pause)

    async def fire(self, build: Callable[[Surfaces], Write]) -> tuple[Fact, ...]:
        """Send a write, such as ``lambda surfaces: surfaces.done("PROJ-12")``. Log a failure (12.4, 12.6).

        Never raises. An agent that must not wait for the node calls this in a task of its own.

        Returns:
            The stored facts; none if the write failed or Stigmem is off.
        """
        if self._surfaces is None:
            return ()
        try:
            return await self.perform(build(self._surfaces))
        except Exception as error:
            # By 12.6, an answer of 4xx or 5xx is logged as an error, and no answer as a warning.
            silent = isinstance(error, BackendError) and error.status is None
            why = str(error) if isinstance(error, MemslotError) else f"unexpected {type(error).__name__}"
            log.log(logging.WARNING if silent else logging.ERROR, "stigmem: not written: %s", why)
            return ()

    async def perform(self, write: Write) -> tuple[Fact, ...]:
        """Send a write now and wait for it, so that the caller learns of a failure.

        While any agent's ping of the task is valid, another ping is not sent, and no facts are returned.
        Errors are those of :func:`carry_out`.
        """
        async with self.open_node() as node:
            if write.what == "activity":
                # Two valid pings contradict each other, and a default query would show neither.
                asked = {"relation": write.facts[0].relation, "include_contradicted": True}
                if await node.query(entity=write.entity, scope="local", limit=1, **asked):
                    return ()
            return await carry_out(node, write)


async def _described(node: StigmemNode) -> NodeInfo:
    info = await node.well_known()
    if absent := ", ".join(name for name, value in vars(info).items() if value is None):
        raise BackendProtocolError(f"stigmem: the node does not state {absent}", backend_name="stigmem")
    return info


def _surfaces(url: str, source: str | None) -> Surfaces:
    """Create the builders. Their authority is that of a formal ``source``, else the URL's host and port."""
    host = urlsplit(check_url(url, "STIGMEM_URL")).netloc.lower()
    if source is None:
        source = build_uri(host, "agent", "memslot")
    elif "://" in source:
        host = urlsplit(check_uri(source, "STIGMEM_SOURCE_ENTITY")).netloc or host
    else:
        # The node folds informal sources in the same way.
        source = check_entity(fold(source), "STIGMEM_SOURCE_ENTITY")
    return Surfaces(source, host)
