"""Hashing data so that formatting, key order and escapes do not matter."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_hash(data: Any) -> str:
    """SHA-256, hex, of ``data`` as JSON with sorted keys and no optional whitespace or escapes."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
