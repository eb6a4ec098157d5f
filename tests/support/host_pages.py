"""What docs/hosts.md and the pages below it say of every host, in the words of the suite's declarations."""

from __future__ import annotations

from memory.hosts._table import HOSTS, Host


def table() -> str:
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
    """What to copy: the commands that install and configure, and the program for a ``memslot.yaml`` beside it."""
    program = host.program("memslot.yaml")
    commands = f"{host.install}\nmemslot setup --condition full_history\n"
    if program.startswith("#"):
        return f"{_NOT_RUN}\n```bash\n{commands}{program}```"
    kind = "json" if program.startswith("{") else "python"
    return f"{_NOT_RUN}\n```bash\n{commands}```\n\n```{kind}\n{program}```"


_NOT_RUN = "<!-- not run: tests/hosts/follow_pages.py follows it in an empty environment -->"
