"""Honcho's filters on rows, with what surprises: ``*`` is everything, ``contains`` has two meanings."""

import json

_OPERATORS = frozenset({"gte", "lte", "gt", "lt", "ne", "in", "contains", "icontains"})


class Refused(Exception):
    """An answer that is an error: status and detail."""

    def __init__(self, status, detail):
        super().__init__(status, detail)
        self.status, self.detail = status, detail


def matches(row, filters, columns):
    """Honcho's filters on a row."""
    for key, value in (filters or {}).items():
        if key in ("AND", "OR", "NOT"):
            hits = [matches(row, branch, columns) for branch in value]
            fits = all(hits) if key == "AND" else any(hits) if key == "OR" else not any(hits)
        elif key not in columns:
            raise Refused(
                422, f"Column '{key}' is not allowed to be filtered on or does not exist on Message"
            )
        elif key == "metadata":
            fits = _metadata(row["metadata"], value)
        else:
            fits = _column(row.get(key), value)
        if not fits:
            return False
    return True


def _column(stored, wanted):
    if wanted == "*":
        return True
    if isinstance(wanted, list):
        return stored in wanted
    if not isinstance(wanted, dict):
        return bool(stored == wanted)
    return all(_compared(stored, operator, value) for operator, value in wanted.items())


def _metadata(stored, wanted):
    if "contains" in wanted and isinstance(wanted["contains"], dict):
        return _contains(stored, wanted["contains"])
    for name, value in wanted.items():
        if value == "*":
            continue
        if isinstance(value, dict) and _OPERATORS & value.keys():
            if name not in stored or not all(
                _compared(_as_text(stored[name]), operator, operand) for operator, operand in value.items()
            ):
                return False
        elif not _contains(stored, {name: value}):
            return False
    return True


def _compared(stored, operator, value):
    if operator == "in":
        return "*" in value or stored in [choice if stored is None else str(choice) for choice in value]
    if operator in ("contains", "icontains"):
        return str(value).lower() in str(stored).lower()
    if stored is None:
        return False
    order = {"gte": stored >= value, "lte": stored <= value, "gt": stored > value, "lt": stored < value}
    return bool({**order, "ne": stored != value}[operator])


def _contains(stored, wanted):
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            name in stored and _contains(stored[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(stored, list) and all(
            any(_contains(item, part) for item in stored) for part in wanted
        )
    return type(stored) is type(wanted) and bool(stored == wanted)


def _as_text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def without_nul(value):
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, dict):
        return {without_nul(name): without_nul(part) for name, part in value.items()}
    return [without_nul(part) for part in value] if isinstance(value, list) else value
