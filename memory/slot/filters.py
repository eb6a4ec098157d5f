"""Filters may narrow, never widen (DESIGN section 5.2). Checked once, before any adapter sees them."""

from __future__ import annotations

import math
import re
from typing import Any

from memory.contract.adapter import FILTER_OPERATORS
from memory.contract.errors import CapabilityNotSupported, InputError, ScopeError
from memory.contract.requests import CROSS_CONTEXT, RetrieveRequest

# Every name by which one of the supported backends addresses a scope.
_SCOPE_KEYS = frozenset(
    {
        "user", "user_id", "userid", "user_name", "agent", "agent_id", "run", "run_id", "app_id", "actor_id",
        "persona", "persona_id", "scope", "namespace", "backend_namespace", "tenant", "tenant_id", "entity",
        "group_id", "group_ids", "workspace", "workspace_id", "peer", "peer_id", "peer_target",
        "peer_perspective", "cube", "cube_id", "mem_cube_id", "readable_cube_ids", "writable_cube_ids",
        "project", "project_id", "collection", "collection_name",
    }
)  # fmt: skip
_PLAIN_KEY = re.compile(r"[\w.-]+")
_LOGIC = frozenset({"and", "or", "not", "any", "all", "nor", "xor", "should", "must", "must_not", "filter"})


def check_filters(request: RetrieveRequest, operators: frozenset[str]) -> None:
    """Refuse filters that could escape the scope, or that ``operators``, the adapter's, cannot apply."""
    if not request.filters:
        return
    cross = request.filters.get(CROSS_CONTEXT)
    if cross is not None and not isinstance(cross, bool):
        raise InputError(f"filters.{CROSS_CONTEXT} must be true or false")
    for key, condition in request.metadata_filters.items():
        _check_key(key)
        if key in request.cs_filters:
            raise InputError(f"filters.{key} and the request's own {key} are both set; give one of them")
        clauses = condition if isinstance(condition, dict) else {"eq": condition}
        if not clauses:
            raise InputError(f"filters.{key} is empty; give a value")
        for operator, value in clauses.items():
            where = f"filters.{key}" if condition is not clauses else f"filters.{key}.{operator}"
            _check_operator(where, operator, operators)
            _check_value(where, operator, value)


def _check_key(key: str) -> None:
    parts = set(key.lower().lstrip("$").split("."))
    if key.lower().lstrip("$") in _LOGIC:
        raise ScopeError(
            f"filters.{key}: logic operators could widen the scope; filters are all required together"
        )
    if _SCOPE_KEYS & parts:
        raise ScopeError(f"filters.{key} names a scope; ask with another RetrieveRequest.scope instead")
    if not _PLAIN_KEY.fullmatch(key):
        raise ScopeError(f"filters.{key!r} is not a metadata key; use letters, digits, '_', '-' and '.'")


def _check_operator(where: str, operator: str, offered: frozenset[str]) -> None:
    if operator.lower().lstrip("$") in _LOGIC:
        raise ScopeError(f"{where}: logic operators could widen the scope; filters are all required together")
    if operator not in FILTER_OPERATORS:
        raise InputError(f"{where}: unknown operator; use one of {', '.join(sorted(FILTER_OPERATORS))}")
    if operator not in offered:
        able = ", ".join(sorted(offered)) or "none"
        raise CapabilityNotSupported(
            f"{where}: this backend cannot filter by {operator!r}; it can by: {able}"
        )


def _check_value(where: str, operator: str, value: Any) -> None:
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) != (operator in ("in", "nin")):
        raise InputError(
            f"{where}: {operator!r} takes {'a list' if operator in ('in', 'nin') else 'one value'}"
        )
    for item in values:
        if isinstance(item, str):
            if item.strip() in ("*", "%", "**"):
                raise ScopeError(
                    f"{where}: the wildcard would match everything; leave the filter out instead"
                )
        elif not isinstance(item, (bool, int, float)) or (
            isinstance(item, float) and not math.isfinite(item)
        ):
            raise InputError(f"{where}: the value must be a string, a finite number or a boolean")
