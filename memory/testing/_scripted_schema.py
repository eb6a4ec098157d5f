"""The smallest JSON value that satisfies a JSON schema, as far as structured outputs use the language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMATS = {
    "date-time": "1970-01-01T00:00:00Z",
    "date": "1970-01-01",
    "time": "00:00:00Z",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "email": "nobody@example.org",
    "uri": "http://example.org",
}
_SIMPLE: dict[str, Any] = {"null": None, "boolean": False}


def minimal_instance(schema: Mapping[str, Any]) -> Any:
    """An instance with required properties only, empty lists, empty texts, null where null is allowed.

    Knows ``$ref``, ``const``, ``enum``, ``default``, ``anyOf``/``oneOf``/``allOf``, lower bounds and string
    formats; not ``pattern``, ``not`` or conditionals.
    """
    return _build(schema, schema, 0)


def _build(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if depth > 40:
        raise ValueError("the schema requires an endlessly nested value")
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return _build(_resolve(schema["$ref"], root), root, depth + 1)
    if "allOf" in schema:
        parts = [_build(part, root, depth + 1) for part in schema["allOf"]]
        merged: dict[str, Any] = {}
        for part in parts:
            if not isinstance(part, dict):
                return part
            merged.update(part)
        return merged
    for key in ("anyOf", "oneOf"):
        if key in schema:
            choices = schema[key]
            if any(choice.get("type") == "null" for choice in choices):
                return None
            return _build(choices[0], root, depth + 1)
    return _by_type(schema, root, depth)


def _by_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "null")
    if isinstance(kind, list):
        kind = "null" if "null" in kind else kind[0]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "object":
        properties = schema.get("properties", {})
        return {
            name: _build(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())
        }
    if kind == "array":
        item = schema.get("items", {})
        return [_build(item, root, depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        text = _FORMATS.get(schema.get("format", ""), "")
        return text.ljust(schema.get("minLength", 0), "-")
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    high = schema.get("maximum", low if low > 0 else 0)
    return max(low, 0) if high >= 0 else high


def _resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = target[part.replace("~1", "/").replace("~0", "~")]
    return dict(target)
