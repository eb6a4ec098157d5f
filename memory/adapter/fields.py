"""Types for fields of options and records, and functions that check or normalise values."""

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
