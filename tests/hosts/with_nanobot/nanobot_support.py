"""A model that answers from what it is shown, and a Nanobot that asks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memory.testing._http_server import HttpServer, LoopbackAnswer, LoopbackRequest


class Model(HttpServer):
    """OpenAI-compatible, streaming or not. Knows of oolong where a memory section in the prompt says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[dict[str, Any]]] = []
        self.tools: list[set[str]] = []

    def respond(self, request: LoopbackRequest) -> LoopbackAnswer | None:
        body = request.json
        self.asked.append(body["messages"])
        self.tools.append({tool["function"]["name"] for tool in body.get("tools", ())})
        told = "oolong" in self.sections[-1]
        text = "You like oolong." if told else f"Noted, {len(self.asked)}."
        head = {"id": "c", "created": 1, "model": "scripted"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return LoopbackAnswer(200, {**head, "object": "chat.completion", "choices": [choice]})
        chunks = [
            {"index": 0, "delta": {"role": "assistant", "content": text}},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        lines = [json.dumps({**head, "object": "chat.completion.chunk", "choices": [one]}) for one in chunks]
        sse = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        return LoopbackAnswer(200, sse.encode(), {"content-type": "text/event-stream"})

    @property
    def prompts(self) -> list[str]:
        """What each request held, all messages as one text."""
        return [json.dumps(messages) for messages in self.asked]

    @property
    def sections(self) -> list[str]:
        """The memory section of each request's last message; empty where there is none."""
        ends = [json.dumps(messages[-1].get("content")) for messages in self.asked]
        return [end[end.index("<memory-context") :] if "<memory-context" in end else "" for end in ends]


def nanobot_config(home: Path, model: Model) -> Path:
    """A configuration with Nanobot's own long-term memory off, as the documentation says."""
    home.mkdir(parents=True, exist_ok=True)
    config = {
        "agents": {
            "defaults": {
                "workspace": str(home / "workspace"),
                "provider": "custom",
                "model": "scripted",
                "dream": {"enabled": False},
                "idleCompactAfterMinutes": 0,
                "disabledSkills": ["memory"],
            }
        },
        "providers": {"custom": {"apiKey": "unused", "apiBase": f"{model.url}/v1"}},
    }
    path = home / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def memory_config(home: Path, backend: str, persona: str = "ada", **more: Any) -> Path:
    """A memslot.yaml beside the configuration; the file holds JSON, which is YAML."""
    settings = {
        "backend": backend,
        "scope": {"run_id": "nanobot", "persona_id": persona},
        "data_dir": str(home / "memory"),
        **more,
    }
    path = home / "memslot.yaml"
    path.write_text(json.dumps({"memory": settings}), encoding="utf-8")
    return path


def files(home: Path) -> str:
    """Everything Nanobot keeps of its sessions, as text."""
    found = [path for path in home.rglob("*.jsonl") if "memory" not in path.parts]
    return "".join(path.read_text(encoding="utf-8") for path in found)
