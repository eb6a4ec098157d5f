"""Hashing data so that formatting, key order and escapes do not matter."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from datetime import datetime
from typing import Any

from memory.contract.events import Message


def canonical_hash(data: Any) -> str:
    """SHA-256, hex, of ``data`` as JSON with sorted keys and no optional whitespace or escapes.

    Dataclasses go in by their fields, messages by role and content.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_fields_of)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fields_of(value: Any) -> Any:
    if isinstance(value, Message):
        return {"role": value.role, "content": value.content}
    if isinstance(value, datetime):
        return value.isoformat()
    return {field.name: getattr(value, field.name) for field in fields(value)}
