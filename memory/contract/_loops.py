"""Which event loop we run on, for the few places where it matters."""

from __future__ import annotations

import asyncio

from anyio.lowlevel import current_token

__all__ = ["on_trio", "running_loop"]


def running_loop() -> object:
    """The running event loop, as an object to compare: asyncio's loop, or trio's token."""
    try:  # asked for on every call, and a tenth of the price of anyio's answer
        return asyncio.get_running_loop()
    except RuntimeError:
        return current_token().native_token


def on_trio() -> bool:
    """Whether the running event loop is trio's; asyncio's otherwise."""
    return type(running_loop()).__module__.startswith("trio")
