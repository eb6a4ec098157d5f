"""A Nanobot whose model answers from what it is shown."""

import json
from pathlib import Path
from typing import Any

from loopback_model import Model


def nanobot_config(directory: Path, model: Model) -> Path:
    """A configuration with Nanobot's own long-term memory off, as the documentation says."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "agents": {
            "defaults": {
                "workspace": str(directory / "workspace"),
                "provider": "custom",
                "model": "scripted",
                "dream": {"enabled": False},
                "idleCompactAfterMinutes": 0,
                "disabledSkills": ["memory"],
            }
        },
        "providers": {"custom": {"apiKey": "unused", "apiBase": f"{model.url}/v1"}},
    }
    path = directory / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def memory_config(directory: Path, backend: str, persona: str = "ada", **more: Any) -> Path:
    """A memslot.yaml beside the configuration; the file holds JSON, which is YAML."""
    settings = {
        "backend": backend,
        "scope": {"run_id": "nanobot", "persona_id": persona},
        "data_dir": str(directory / "memory"),
        **more,
    }
    path = directory / "memslot.yaml"
    path.write_text(json.dumps({"memory": settings}), encoding="utf-8")
    return path


def files(directory: Path) -> str:
    """Everything Nanobot keeps of its sessions, as text."""
    found = [path for path in directory.rglob("*.jsonl") if "memory" not in path.parts]
    return "".join(path.read_text(encoding="utf-8") for path in found)
