"""A memory over streamable HTTP that serves every scope: ``notes_server.py PORT [ignore]``.

With ``ignore`` it takes the argument that names the scope, and keeps everything in one place.
"""

import sys
from collections import defaultdict
from typing import Any

from mcp.server.fastmcp import FastMCP

server = FastMCP("notes", port=int(sys.argv[1]), log_level="ERROR")
IGNORES = "ignore" in sys.argv
NOTES = defaultdict(dict)


def space(name):
    return NOTES["" if IGNORES else name]


@server.tool()
def add(owner: str, key: str, text: str, fields: str) -> str:
    space(owner)[key] = {"id": key, "text": text, "fields": fields}
    return "Saved."


@server.tool()
def search(owner: str, query: str, limit: int) -> dict[str, Any]:
    words = query.split(" OR ")
    hits = [row for row in space(owner).values() if any(word in row["text"].lower() for word in words)]
    return {"found": [{"id": row["id"]} for row in hits[:limit]]}


@server.tool()
def read(owner: str, key: str) -> dict[str, Any]:
    return space(owner).get(key) or {"error": "ABSENT"}


@server.tool()
def page_of(owner: str, page: int) -> dict[str, Any]:
    return {"rows": list(space(owner).values())[(page - 1) * 2 : page * 2]}


@server.tool()
def drop(owner: str, key: str) -> dict[str, Any]:
    return {} if space(owner).pop(key, None) else {"error": "ABSENT"}


if __name__ == "__main__":
    server.run(transport="streamable-http")
