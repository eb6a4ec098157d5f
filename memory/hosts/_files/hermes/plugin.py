"""memslot's memory provider. Written by ``memslot hosts hermes install``; its ``uninstall`` removes it."""

import sys

from agent.memory_provider import MemoryProvider


class NotInstalled(MemoryProvider):
    """In place of a provider that cannot be imported: Hermes itself would say nothing."""

    name = "memslot"

    def __init__(self, problem):
        self._problem = f"memslot cannot be imported by {sys.executable}: {problem}"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        complaint = f"memslot: long-term memory is NOT working: {self._problem}"
        sys.stderr.write(complaint + "\n")
        if warn := kwargs.get("warning_callback"):
            warn(complaint)

    def system_prompt_block(self):
        return f"Long-term memory is NOT working in this session ({self._problem}). Tell the user so."

    def get_tool_schemas(self):
        return []


def register(ctx):
    try:
        from memory.hosts.hermes import SlotProvider

        provider = SlotProvider()
    except Exception as error:
        provider = NotInstalled(f"{type(error).__name__}: {error}")
    ctx.register_memory_provider(provider)
