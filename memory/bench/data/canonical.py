"""Hashing data so that formatting, key order and escapes do not matter."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from memory.contract.events import Message


def canonical_hash(data: Any) -> str:
    """SHA-256, hex, of ``data`` as JSON with sorted keys and no optional whitespace or escapes."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def json_ready(value: Any) -> Any:
    """Generated data as JSON takes it, for :func:`canonical_hash`."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if isinstance(value, Message):
        return {"role": value.role, "content": value.content}
    return value.isoformat() if isinstance(value, datetime) else value
