"""A memory provider of Hermes Agent behind memslot's slot: a ``hermes_home`` for each scope."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import copy_context
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from uuid import uuid4

import yaml
from pydantic import Field

from memory import (
    BackendError,
    BackendHealth,
    BackendReadiness,
    BackendUnavailable,
    ConfigError,
    MemoryEvent,
    MemoryScope,
    ResetReceipt,
    RetrieveRequest,
    RetrieveResult,
    WriteReceipt,
)
from memory.adapter import (
    AdapterSettings,
    AdapterTraits,
    BaseAdapter,
    ContextEntry,
    DataPath,
    IdAlphabet,
    NativeWorker,
    PluginInfo,
    PluginOptions,
    Public,
    ScopeEncoder,
    hookimpl,
)
from memory.adapter.sdk import environment_kept, quiet_loggers
from memory.adapter.stores import remove_directory

if TYPE_CHECKING:
    from agent.memory_provider import MemoryProvider

T = TypeVar("T")
SESSION = "memslot"
"""Every provider is told one session for ever: some recall within a session alone."""
TOOLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "holographic": ("fact_store", {"action": "add", "content": "{text}"}),
}
"""Providers that keep nothing of a turn by themselves: the tool that stores, and its arguments."""


class Options(PluginOptions):
    """The block ``memory.backends.hermes``."""

    provider: Public[str] = "holographic"
    """Its name in Hermes: one that ships with it, or the entry point of an installed package."""
    store: Literal["turn", "tool", "session_end"] | None = None
    """How an event is stored: ``sync_turn``, a tool of the provider, or ``on_session_end``. None: as the provider
    is known to need it, else ``turn``."""
    tool: Public[str] | None = None
    """The tool that stores, called for each message."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments; ``{text}`` stands for what was said."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Hermes' ``config.yaml`` for every scope, such as the provider's own settings."""
    directory: DataPath | None = None
    """Where Hermes' homes lie. None: ``hermes`` in ``memory.data_dir``."""


class Hermes(BaseAdapter):
    """Providers, initialized when first used, on one thread."""

    traits = AdapterTraits(consistency="async_derived", cs_filtering="none")

    def __init__(self, settings: AdapterSettings[Options]) -> None:
        options = settings.options
        self.backend_name = settings.name
        self.directory = options.directory or settings.data_dir / settings.name
        self.worker: NativeWorker = NativeWorker(name=f"memslot-{settings.name}")
        self.providers: dict[str, MemoryProvider] = {}
        tool, arguments = TOOLS.get(options.provider, (None, {}))
        self._provider = options.provider
        self._tool = options.tool or tool
        self._arguments = options.arguments or dict(arguments)
        self._store = options.store or ("tool" if self._tool else "turn")
        self._config = options.config
        self._ids = ScopeEncoder(IdAlphabet(safe="-", escape="_", max_length=120))
        if self._store == "tool" and not self._tool:
            raise ConfigError("memory.backends.hermes.tool: name the tool that stores, or choose store: turn")

    def native_scope(self, scope: MemoryScope) -> Mapping[str, str]:
        return {"hermes_home": self._ids.encode(scope)["id"]}

    async def setup_scope(self, scope: MemoryScope) -> None:
        """Initialize the provider, so that what is wrong with it shows before the first turn."""
        await self._run(scope, lambda _: None)

    async def record_event(self, event: MemoryEvent) -> WriteReceipt:
        """Hand the event over. Only a tool answers whether it is stored."""
        store = {"turn": self._by_turn, "tool": self._by_tool, "session_end": self._by_session_end}[
            self._store
        ]
        native_ids = await self._run(event.scope, lambda provider: store(provider, event))
        return self.receipt(
            event, self._store, native_ids, status="committed" if self._store == "tool" else "queued"
        )

    def _by_turn(self, provider: MemoryProvider, event: MemoryEvent) -> list[str]:
        said = {role: "\n".join(_texts(event, role)) for role in ("user", "assistant")}
        provider.sync_turn(said["user"], said["assistant"], session_id=SESSION)
        return []

    def _by_tool(self, provider: MemoryProvider, event: MemoryEvent) -> list[str]:
        ids = []
        for text in _texts(event):
            arguments = {key: text if value == "{text}" else value for key, value in self._arguments.items()}
            answer = json.loads(provider.handle_tool_call(str(self._tool), arguments))
            if "error" in answer:  # its words repeat what was sent
                raise BackendError(f"the tool {self._tool} failed", operation=str(self._tool))
            ids += [str(value) for key, value in answer.items() if key.endswith("_id")]
        return ids

    def _by_session_end(self, provider: MemoryProvider, event: MemoryEvent) -> list[str]:
        provider.on_session_end([{"role": each.role, "content": each.content} for each in event.messages])
        return []

    async def readiness(self, scope: MemoryScope) -> BackendReadiness:
        """``unknown``: a provider has no call that tells what became of a turn."""
        await self._run(scope, lambda _: None)
        return BackendReadiness(state="unknown", detail="a provider does not tell what became of a turn")

    async def retrieve(self, request: RetrieveRequest) -> RetrieveResult:
        """``prefetch``: one text, as the provider would show it to the model."""
        text = await self._run(
            request.scope, lambda provider: provider.prefetch(request.query, session_id=SESSION) or ""
        )
        return RetrieveResult(
            request=request,
            raw={"prefetch": text},
            entries=(ContextEntry(text, scope_ids=self.native_scope(request.scope)),) if text.strip() else (),
            trace=self.trace(request.scope, "prefetch"),
        )

    async def reset_scope(self, scope: MemoryScope) -> ResetReceipt:
        """Remove the provider's home."""
        directory = self.directory / self._directory_of(scope)

        def remove(provider: MemoryProvider) -> None:
            provider.shutdown()
            del self.providers[directory.name]
            remove_directory(directory)

        await self._run(scope, remove)
        verified = not directory.exists()
        return ResetReceipt(scope=scope, verified=verified, trace=self.trace(scope, "remove the home"))

    async def health(self) -> BackendHealth:
        provider = await self.worker.run(lambda: _load(self._provider, self.directory / "health"))
        if not provider.is_available():
            raise BackendUnavailable(f"the provider {self._provider} says that it is not available")
        return self.health_of(
            versions={"hermes-agent": version("hermes-agent")}, details={"provider": self._provider}
        )

    def close_native(self) -> None:
        """Shut every provider down, on the thread that began it."""
        while self.providers:
            self.providers.popitem()[1].shutdown()

    def _directory_of(self, scope: MemoryScope) -> str:
        return self.native_scope(scope)["hermes_home"]

    async def _run(self, scope: MemoryScope, call: Callable[[MemoryProvider], T]) -> T:
        """``call`` with the scope's provider, on the worker, in the scope's home."""
        directory = self.directory / self._directory_of(scope)

        def at_home() -> T:
            from hermes_constants import set_hermes_home_override

            # A new name after a reset: some providers keep what they opened by its path.
            hermes_home = directory / uuid4().hex
            if directory.exists():
                hermes_home = next(directory.iterdir(), hermes_home)
            set_hermes_home_override(hermes_home)
            if directory.name not in self.providers:
                self.providers[directory.name] = self._initialized(hermes_home)
            return call(self.providers[directory.name])

        return await self.worker.run(lambda: copy_context().run(at_home))

    def _initialized(self, hermes_home: Path) -> MemoryProvider:
        hermes_home.mkdir(parents=True, exist_ok=True)
        if self._config:
            (hermes_home / "config.yaml").write_text(yaml.safe_dump(self._config), encoding="utf-8")
        provider = _load(self._provider, hermes_home)
        provider.initialize(SESSION, hermes_home=str(hermes_home), platform="cli", agent_context="primary")
        return provider


def _texts(event: MemoryEvent, role: str | None = None) -> list[str]:
    return [
        message.content or json.dumps(message.tool_calls, ensure_ascii=False)
        for message in event.messages
        if role is None or message.role == role or (role == "assistant" and message.role != "user")
    ]


def _load(name: str, hermes_home: Path) -> MemoryProvider:
    """A provider of its own each time. Hermes falls back to its built-in memory in silence; this does not.

    Some write their settings where the environment says when they are made, by default into the user's home.
    """
    with environment_kept(HERMES_HOME=str(hermes_home)):
        from plugins.memory import load_memory_provider

        quiet_loggers("plugins")
        found = load_memory_provider(name)
        for point in entry_points(group="hermes_agent.memory_providers", name=name) if found is None else ():
            collected: list[MemoryProvider] = []
            point.load().register_memory_provider(_Context(collected))
            found = collected[0] if collected else None
    if found is None:
        raise BackendUnavailable(f"Hermes knows no memory provider called {name}", sent=False)
    return found


class _Context:
    """What a plugin of Hermes registers with; only its memory provider is wanted."""

    def __init__(self, found: list[MemoryProvider]) -> None:
        self._found = found

    def register_memory_provider(self, provider: MemoryProvider) -> None:
        self._found.append(provider)

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


@hookimpl
def memslot_describe() -> PluginInfo:
    return PluginInfo(
        name="hermes",
        kind="architecture",
        summary="any memory provider of Hermes Agent, in a home of its own for each scope",
        capabilities=frozenset({"readiness"}),
        consistency="async_derived",
        sdk_modules=("plugins.memory", "agent.memory_provider"),
        install="pip install memslot-hermes",
        options=Options,
    )


@hookimpl
def memslot_create(settings: AdapterSettings[Options]) -> Hermes:
    return Hermes(settings)


@hookimpl
def memslot_conformance() -> type[Any]:
    from memslot_hermes.conformance import Profile

    return Profile
