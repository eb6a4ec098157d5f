"""Blocks for servers that run without a key. What a preset leaves out, the user's block says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # @modelcontextprotocol/server-memory 2026.8.31: one JSONL file; a substring of name, type or observation.
    "server-memory": {
        "command": ["npx", "-y", "@modelcontextprotocol/server-memory"],
        "env": {"MEMORY_FILE_PATH": "{directory}/memory.jsonl"},
        "store": {
            "tool": "create_entities",
            "arguments": {
                "entities": {
                    "$each": {"name": "{name}", "entityType": "{fields}", "observations": ["{text}"]},
                }
            },
        },
        "search": {"tool": "search_nodes", "arguments": {"query": "{query}"}, "rows": "entities"},
        "list_all": {"tool": "read_graph", "rows": "entities"},
        "delete": {"tool": "delete_entities", "arguments": {"entityNames": "{names}"}},
        "row": {"name": "name", "text": "observations.0", "fields": "entityType"},
        "by_word": True,
    },
    # mcp-memory-libsql 0.0.17: one SQLite file; the same model of entities, of which it lists at most 50.
    # It trims what is said, and replaces an entity whose name it knows.
    "memory-libsql": {
        "command": ["npx", "-y", "mcp-memory-libsql"],
        "env": {"LIBSQL_URL": "file:{directory}/memory.db"},
        "store": {
            "tool": "create_entities",
            "arguments": {
                "entities": {
                    "$each": {"name": "{key}", "entityType": "message", "observations": ["{text}", "{fields}"]},
                }
            },
        },
        "search": {
            "tool": "search_nodes",
            "arguments": {"query": "{query}", "limit": 50},
            "rows": "entities",
        },
        "look_up": {
            "tool": "search_nodes",
            "arguments": {"query": "{key}", "limit": 1},
            "rows": "entities",
        },
        "list_all": {
            "tool": "search_nodes",
            "arguments": {"query": "%", "limit": 50},  # it asks SQLite with LIKE
            "rows": "entities",
        },
        "delete": {"tool": "delete_entity", "arguments": {"name": "{key}"}},
        "row": {"name": "name", "text": "observations.0", "fields": "observations.1"},
        "by_word": True,
    },
    # basic-memory 0.24.1: a Markdown file a note, indexed by SQLite; a project a scope. It is asked over HTTP
    # because a process takes seconds to start: basic-memory mcp --transport streamable-http.
    "basic-memory": {
        "url": "http://127.0.0.1:8000/mcp",
        "setup": {
            "tool": "create_memory_project",
            "arguments": {
                "project_name": "{scope}", "project_path": "{directory}", "output_format": "json",
            },
            "error": "result.error",
        },
        "store": {
            "tool": "write_note",
            "arguments": {
                "project": "{scope}", "directory": "messages", "title": "{key}", "content": "{text}",
                "metadata": {"memslot": "{fields}", "said": "{text}"}, "overwrite": True,
                "output_format": "json",
            },
            "error": "result.error",
        },
        "search": {
            "tool": "search_notes",
            "arguments": {
                "project": "{scope}", "query": "{any_word}", "search_type": "text", "page_size": "{limit}",
                "entity_types": ["entity"], "output_format": "json",
            },
            "rows": "result.results",
        },
        "read": {
            "tool": "read_note",
            "arguments": {"project": "{scope}", "identifier": "messages/{key}", "output_format": "json"},
            "rows": "result",
            "error": "result.error",
            "absent": "NOTE_NOT_FOUND",
        },
        "list_all": {
            "tool": "list_directory",
            "arguments": {
                "project": "{scope}", "dir_name": "/messages", "page": "{page}", "page_size": 200,
                "output_format": "json",
            },
            "rows": "result.nodes",
        },
        "delete": {
            "tool": "delete_note",
            "arguments": {
                "project": "{scope}", "identifier": "messages", "is_directory": True, "output_format": "json",
            },
            "error": "result.error",
        },
        "row": {"name": "title", "text": "frontmatter.said", "fields": "frontmatter.memslot"},
    },
}  # fmt: skip
