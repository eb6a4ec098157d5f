"""Sessions and servers around a slot, for authors of hosts.

Turns of a host (:class:`TurnMemory`, :class:`HostTurns`), an agent's session (:class:`AgentSession`), single
memories (:class:`MemoryItems`), Signet's runtime contract (:class:`RuntimeAdapter`), memories that several
processes share (:func:`open_shared`) and turns of coding agents' hooks (:class:`HookQueue`).

Enters: what a host would otherwise write itself. Stays out: SDKs of one host (``memory.hosts``) or of one backend.
Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.contract._late import attach as _attach

if TYPE_CHECKING:
    from memory.contract._surviving import Failures
    from memory.contract.foreign import parts_of
    from memory.contract.formatting import strip_context
    from memory.plugins.config import MemslotConfig, load_config
    from memory.plugins.opening import build_slot
    from memory.runtime._attach import open_shared
    from memory.runtime._channel import (
        AgentOutput,
        Attachment,
        Channel,
        ChannelClosed,
        Checkpoint,
        CommandLine,
        SessionSettings,
        TurnReport,
        UserTurn,
    )
    from memory.runtime._hook_turns import (
        HookQueue,
        HookTurn,
        report_program,
        reports_file,
    )
    from memory.runtime._hosting import HostTurns, OpenMemory, UserOf, answer_text, tool_running, turns_of
    from memory.runtime._items import Item, MemoryItems, ShownSections
    from memory.runtime._listening import listening_socket
    from memory.runtime._loop import AgentSession, run_session
    from memory.runtime._policy import Recall, TurnMemory, TurnPolicy
    from memory.runtime._provider import (
        CompletionChunk,
        CompletionOptions,
        CompletionResult,
        Provider,
        ToolCall,
        ToolDefinition,
        Usage,
    )
    from memory.runtime._said import said_by_user
    from memory.runtime._sockets import SocketOwner, socket_in
    from memory.runtime._tools import Tool, ToolContext, ToolRegistry, ToolResult, memory_tools
    from memory.runtime.providers import ProviderPlugin, create_provider
    from memory.runtime.signet.client import AdapterClient, create_adapter
    from memory.runtime.signet.server import RuntimeAdapterServer
    from memory.runtime.signet.sessions import TokenGrant
    from memory.runtime.signet.settings import ServeSettings
    from memory.runtime.signet.types import (
        CompactionCompleteParams,
        CompactionResult,
        PreCompactionParams,
        PreCompactionResult,
        PromptSubmitParams,
        PromptSubmitResult,
        RuntimeAdapter,
        SessionEndParams,
        SessionEndResult,
        SessionStartParams,
        SessionStartResult,
    )
    from memory.storage.kept import HostStore, StoredObject

__all__ = [
    "AdapterClient",
    "AgentOutput",
    "AgentSession",
    "Attachment",
    "Channel",
    "ChannelClosed",
    "Checkpoint",
    "CommandLine",
    "CompactionCompleteParams",
    "CompactionResult",
    "CompletionChunk",
    "CompletionOptions",
    "CompletionResult",
    "Failures",
    "HookQueue",
    "HookTurn",
    "HostStore",
    "HostTurns",
    "Item",
    "MemoryItems",
    "MemslotConfig",
    "OpenMemory",
    "PreCompactionParams",
    "PreCompactionResult",
    "PromptSubmitParams",
    "PromptSubmitResult",
    "Provider",
    "ProviderPlugin",
    "Recall",
    "RuntimeAdapter",
    "RuntimeAdapterServer",
    "ServeSettings",
    "SessionEndParams",
    "SessionEndResult",
    "SessionSettings",
    "SessionStartParams",
    "SessionStartResult",
    "ShownSections",
    "SocketOwner",
    "StoredObject",
    "TokenGrant",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolRegistry",
    "ToolResult",
    "TurnMemory",
    "TurnPolicy",
    "TurnReport",
    "Usage",
    "UserOf",
    "UserTurn",
    "answer_text",
    "build_slot",
    "create_adapter",
    "create_provider",
    "listening_socket",
    "load_config",
    "memory_tools",
    "open_shared",
    "parts_of",
    "report_program",
    "reports_file",
    "run_session",
    "said_by_user",
    "socket_in",
    "strip_context",
    "tool_running",
    "turns_of",
]

# The same names for the running program. A test compares both lists.
_LATE = {
    "memory.contract._surviving": "Failures",
    "memory.contract.foreign": "parts_of",
    "memory.contract.formatting": "strip_context",
    "memory.plugins.config": "MemslotConfig load_config",
    "memory.plugins.opening": "build_slot",
    "memory.runtime._attach": "open_shared",
    "memory.runtime._channel": """
        AgentOutput Attachment Channel ChannelClosed Checkpoint CommandLine
        SessionSettings TurnReport UserTurn
    """,
    "memory.runtime._hook_turns": "HookQueue HookTurn report_program reports_file",
    "memory.runtime._hosting": "HostTurns OpenMemory UserOf answer_text tool_running turns_of",
    "memory.runtime._items": "Item MemoryItems ShownSections",
    "memory.runtime._listening": "listening_socket",
    "memory.runtime._loop": "AgentSession run_session",
    "memory.runtime._policy": "Recall TurnMemory TurnPolicy",
    "memory.runtime._provider": """
        CompletionChunk CompletionOptions CompletionResult Provider ToolCall
        ToolDefinition Usage
    """,
    "memory.runtime._said": "said_by_user",
    "memory.runtime._sockets": "SocketOwner socket_in",
    "memory.runtime._tools": "Tool ToolContext ToolRegistry ToolResult memory_tools",
    "memory.runtime.providers": "ProviderPlugin create_provider",
    "memory.runtime.signet.client": "AdapterClient create_adapter",
    "memory.runtime.signet.sessions": "TokenGrant",
    "memory.runtime.signet.server": "RuntimeAdapterServer",
    "memory.runtime.signet.settings": "ServeSettings",
    "memory.runtime.signet.types": """
        CompactionCompleteParams CompactionResult PreCompactionParams PreCompactionResult
        PromptSubmitParams PromptSubmitResult RuntimeAdapter SessionEndParams SessionEndResult
        SessionStartParams SessionStartResult
    """,
    "memory.storage.kept": "HostStore StoredObject",
}

__getattr__, __dir__ = _attach(globals(), _LATE)
