"""Makes ``docs/design.md`` of ``docs/design.yaml``: ``python docs/_design.py``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
HEAD = """# The design documents

<!-- docs/_design.py makes this page of docs/design.yaml. -->

Four documents describe what memslot builds: the memory adapter design, Signet's runtime contract, and two parts of
Stigmem's specification. This page names the place of everything they name, and lists every departure with its
reason. A departure that is not in this list does not exist.
"""


@dataclass(frozen=True)
class Row:
    """A name of a document.

    Attributes:
        document, section: where it stands.
        name: as the document writes it, in Python's spelling.
        place: where it is here; None where it is not.
        departure: key of the departure that says what differs; None where nothing does.
    """

    document: str
    section: str
    name: str
    place: str | None
    departure: str | None


def table() -> dict[str, Any]:
    """The content of ``design.yaml``."""
    found: dict[str, Any] = yaml.safe_load((HERE / "design.yaml").read_text(encoding="utf-8"))
    return found


def rows(content: dict[str, Any]) -> Iterator[Row]:
    """A row for each name, in the order of the documents."""
    for document in content["documents"]:
        for section in document["sections"]:
            where = document["title"], str(section["section"])
            for given in section["rows"] or ():
                if isinstance(given, dict):
                    for field in given["fields"]:
                        yield Row(*where, f"{given['of']}.{field}", f"{given['at']}.{field}", None)
                    continue
                name, place, *departure = given
                yield Row(
                    *where, name, None if place == "none" else place, departure[0] if departure else None
                )


def shown(place: str) -> str:
    """A place as the page writes it."""
    kind, separator, rest = place.partition(":")
    if not separator or kind not in ("option", "setting", "spec", "http", "file", "text"):
        return f"`{place}`"
    if kind == "text":
        return f"`{rest.partition('#')[0]}`"
    if kind == "option":
        return f"option `{rest}`"
    return {"setting": "setting ", "spec": "the kit's `"}.get(kind, "") + {
        "setting": f"`{rest}`",
        "spec": f"{rest}`",
    }.get(kind, f"`{rest}`")


def page(content: dict[str, Any]) -> str:
    """The whole page."""
    lines = [HEAD]
    last = ""
    for row in rows(content):
        if row.document != last:
            last = row.document
            lines.append(f"\n## {last}\n\n| Section | Name | Place | Departure |\n|---|---|---|---|")
        differs = f"[{row.departure}](#departures)" if row.departure else ""
        place = shown(row.place) if row.place else "–"
        name = row.name.replace("|", "\\|")
        lines.append(f"| {row.section} | {name} | {place} | {differs} |")
    lines.append("\n## Departures\n\n| | The document says | We do | Why |\n|---|---|---|---|")
    for key, departure in content["departures"].items():
        lines.append(f"| {key} | {departure['says']} | {departure['does']} | {departure['why']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (HERE / "design.md").write_text(page(table()), encoding="utf-8")
