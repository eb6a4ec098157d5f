"""The tools of the reference memory server over stdio that the preset uses, with its substring search."""

import json
import os
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import FastMCP

server = FastMCP("graph")
FILE = Path(os.environ["MEMORY_FILE_PATH"])


def load():
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


def save(entities):
    FILE.write_text("".join(json.dumps(entity) + "\n" for entity in entities))


@server.tool()
def create_entities(entities: list[dict[str, Any]]) -> dict[str, Any]:
    known = load()
    new = [entity for entity in entities if entity["name"] not in {each["name"] for each in known}]
    save(known + new)
    return {"entities": new}


@server.tool()
def search_nodes(query: str) -> dict[str, Any]:
    def holds(entity):
        texts = [entity["name"], entity["entityType"], *entity["observations"]]
        return any(query.lower() in text.lower() for text in texts)

    return {"entities": [entity for entity in load() if holds(entity)], "relations": []}


@server.tool()
def read_graph() -> dict[str, Any]:
    return {"entities": load(), "relations": []}


@server.tool()
def delete_entities(entityNames: list[str]) -> str:
    if "boom" in entityNames:
        raise ValueError("refused: boom said by a user")
    save([entity for entity in load() if entity["name"] not in entityNames])
    return '{"deleted": true}'


if __name__ == "__main__":
    server.run()
