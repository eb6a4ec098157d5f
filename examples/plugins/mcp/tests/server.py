"""An MCP memory of many owners: one SQLite file, searched by its words (FTS5, bm25).

``server.py FILE`` serves over stdio, and ``server.py FILE PORT`` over streamable HTTP.
"""

import re
import sqlite3
import sys
from typing import Any

from mcp.server.fastmcp import FastMCP

FILE, PORT = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else None
SIGN = "\u3040-\u30ff\u3400-\u9fff"  # Chinese and Japanese have no blanks between words
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+")
server = FastMCP("notes", log_level="CRITICAL", port=PORT or 0, stateless_http=True, json_response=True)
database = sqlite3.connect(FILE, isolation_level=None, check_same_thread=False)
database.execute(
    "CREATE VIRTUAL TABLE IF NOT EXISTS notes "
    "USING fts5(owner UNINDEXED, id UNINDEXED, text UNINDEXED, fields UNINDEXED, words)"
)


def rows(condition: str, *values: Any) -> dict[str, Any]:
    found = database.execute(f"SELECT id, text, fields FROM notes WHERE owner = ? {condition}", values)
    return {"notes": [dict(zip(("id", "text", "fields"), row, strict=True)) for row in found]}


@server.tool()
def add(owner: str, id: str, text: str, fields: str) -> str:
    words = " ".join(WORD.findall(text))
    database.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?)", (owner, id, text, fields, words))
    return "stored"


@server.tool()
def search(owner: str, query: str, limit: int) -> dict[str, Any]:
    words = " OR ".join(f'"{word}"' for word in set(WORD.findall(query)))
    return rows("AND notes MATCH ? ORDER BY rank LIMIT ?", owner, words, limit) if words else {"notes": []}


@server.tool()
def list_notes(owner: str) -> dict[str, Any]:
    return rows("ORDER BY rowid", owner)


@server.tool()
def delete(owner: str, id: str) -> str:
    if database.execute("DELETE FROM notes WHERE owner = ? AND id = ?", (owner, id)).rowcount == 0:
        raise ValueError(f"nothing called {id}")
    return "deleted"


if __name__ == "__main__":
    server.run(transport="streamable-http" if PORT else "stdio")
