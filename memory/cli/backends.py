"""``memslot backends``: what is installed, who ships it, what it can do. Imports no SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.plugins.console import AsJson, print_json, print_table, say

if TYPE_CHECKING:
    from memory.plugins.registry import PluginRow


def status_of(row: PluginRow) -> str:
    """Whether a plugin can be used, and if not, the command or the error that says why."""
    if row.error is not None:
        return f"broken: {row.error}"
    if row.missing:
        return (row.info.install if row.info else "") or f"missing: {', '.join(row.missing)}"
    return "installed"


def complete_provider(incomplete: str) -> list[str]:
    """Names for the shell's completion; imports no plugin."""
    from memory.plugins.registry import MemoryAdapterRegistry

    return [name for name in MemoryAdapterRegistry().names() if name.startswith(incomplete)]


def backends(as_json: AsJson = False) -> None:
    """List backends and conditions: source, capabilities, and whether each is installed."""
    from memory.plugins.registry import MemoryAdapterRegistry

    rows = MemoryAdapterRegistry().rows()
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    print_table(
        ("name", "kind", "source", "consistency", "capabilities", "summary", "status"),
        [
            (
                row.name,
                "backend" if row.kind == "architecture" else "condition",
                f"{row.distribution or 'unknown'} {row.version or ''}",
                row.info.consistency if row.info else "-",
                ", ".join(sorted(row.info.capabilities)) or "-" if row.info else "-",
                row.info.summary if row.info else "-",
                status_of(row),
            )
            for row in rows
        ],
    )
    if not rows:
        say("No plugin is installed; reinstall memslot.")
