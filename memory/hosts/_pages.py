"""What docs/hosts.md and the pages below it say of every host, in the words of the suite's declarations."""

from __future__ import annotations

from memory.hosts._host import Host
from memory.hosts._table import HOSTS


def table() -> str:
    """The hosts as a markdown table."""
    titles = ("Host", "Tested", "What the model is shown", "When a turn is recorded", "What it cannot do")
    rows = [titles, ("---",) * len(titles)]
    for host in HOSTS.values():
        tested = (
            f"{host.distribution} {host.tested[0]} to below {host.tested[1]}"
            if host.tested
            else host.tested_by
        )
        cannot = "; ".join(dict.fromkeys(host.cannot.values())) or "-"
        title = f"[{host.title}](hosts/{host.name}.md)"
        rows.append((title, tested, host.shown, host.recorded, cannot))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def block(host: Host) -> str:
    """A host's program as a code block, for a ``memslot.yaml`` beside it."""
    program = host.program("memslot.yaml")
    kind = "json" if program.startswith("{") else "bash" if program.startswith("#") else "python"
    mark = "<!-- not run: it starts the host itself -->\n" if kind == "bash" else ""
    return f"{mark}```{kind}\n{program}```"
