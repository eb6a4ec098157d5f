"""Types for fields of options and records, and what checks or normalises a value."""

from memory.contract._model import (
    AwareDatetime,
    Frozen,
    JsonObject,
    Text,
    check_aware,
    check_text,
    first_problem,
    normalise,
    parse_time,
    without_nul,
)
from memory.contract.requests import NotBlank

__all__ = [
    "AwareDatetime",
    "Frozen",
    "JsonObject",
    "NotBlank",
    "Text",
    "check_aware",
    "check_text",
    "first_problem",
    "normalise",
    "parse_time",
    "without_nul",
]
