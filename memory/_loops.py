"""Which event loop we run on, for the few places where it matters."""

from __future__ import annotations

from anyio.lowlevel import current_token

__all__ = ["on_trio"]


def on_trio() -> bool:
    """Whether the running event loop is trio's; asyncio's otherwise."""
    return type(current_token().native_token).__module__.startswith("trio")
