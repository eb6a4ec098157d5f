"""What docs/hosts.md and the pages below it say of every host, in the words of the suite's declarations.

``python tests/support/host_pages.py NAME`` writes the table into docs/hosts.md and prints the block of a page.
"""

import os
import re
import sys
from pathlib import Path

from memory.hosts.table import HOSTS

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"


def table():
    titles = ("Host", "Tested", "What the model is shown", "When a turn is recorded", "What it cannot do")
    rows = [titles, ("---",) * len(titles)]
    for host in HOSTS.values():
        tested = (
            f"{host.distribution} {host.tested[0]} to below {host.tested[1]}"
            if host.tested
            else host.tested_by
        )
        cannot = " ".join(dict.fromkeys(host.cannot.values())) or "-"
        title = f"[{host.title}](hosts/{host.name}.md)"
        rows.append((title, tested, host.shown, host.recorded, cannot))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def verdict(recorded, seen):
    """How many turns of those that the user saw are lost, stored twice, or stored as a pair that never was."""
    twice = len(recorded) - len({*recorded})
    lost = sum(turn not in recorded for turn in seen)
    return {"lost": lost, "duplicated": twice, "false": sum(turn not in seen for turn in recorded)}


def assert_on_the_page(name, turns, recorded, judged):
    """docs/hosts.md has the row of a host's long conversation, as it was played just now.

    ``make hosts-table`` sets MEMSLOT_STAGE to write the row instead.
    """
    row = " | ".join(map(str, (HOSTS[name].title, turns, recorded, *judged.values())))
    if os.environ.get("MEMSLOT_STAGE") == "write":
        old = rf"^\| {re.escape(HOSTS[name].title)} \| \d.*$"
        page, found = re.subn(old, f"| {row} |", PAGE.read_text("utf-8"), flags=re.M)
        if not found:  # a host that is new stands last
            last = [*re.finditer(r"^\| .+ \| \d+ \| \d+ \|.*$", page, flags=re.M)][-1].end()
            page = f"{page[:last]}\n| {row} |{page[last:]}"
        PAGE.write_text(page, "utf-8")
    assert f"| {row} |" in PAGE.read_text("utf-8"), f"the stage came to: | {row} |"


def block(host):
    """What to copy: the commands that install and configure, and the program for a ``memslot.yaml`` beside it."""
    program = host.program("memslot.yaml")
    commands = f"{host.install}\nmemslot setup --backend full_history\n"
    if program.startswith("#"):
        return f"{_NOT_RUN}\n```bash\n{commands}{program}```"
    kind = "json" if program.startswith("{") else "python"
    return f"{_NOT_RUN}\n```bash\n{commands}```\n\n```{kind}\n{program}```"


_NOT_RUN = "<!-- not run: tests/hosts/follow_pages.py follows it in an empty environment -->"


def main():
    page = PAGE.read_text("utf-8")
    PAGE.write_text(
        re.sub(r"^\| Host \| Tested .*?(?=\n\n)", lambda _: table(), page, flags=re.S | re.M), "utf-8"
    )
    for name in sys.argv[1:]:
        sys.stdout.write(f"{block(HOSTS[name])}\n")


if __name__ == "__main__":
    main()
