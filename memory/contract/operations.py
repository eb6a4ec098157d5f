"""Native operations as an adapter declares them, so that the slot refuses what is none (spec section 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, ValidationError, create_model

from memory.contract._model import first_problem


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


NotBlank = Annotated[str, AfterValidator(_not_blank)]
"""The type of an argument that says something."""


@dataclass(frozen=True)
class Operation:
    """What one native operation takes.

    Attributes:
        optional: argument -> its type, as pydantic understands it, of what may be left out.
        required: the same, of what must be there.
        native_id: whether it works on the one record that ``native_id`` names.
    """

    optional: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    native_id: bool = False

    @cached_property
    def _model(self) -> Any:
        fields: dict[str, Any] = {name: (kind, ...) for name, kind in self.required.items()}
        fields |= {name: (kind, None) for name, kind in self.optional.items()}
        return create_model("Arguments", __config__=ConfigDict(extra="forbid", strict=True), **fields)

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """``name: what is wrong`` of the first argument that is; None where all are as declared."""
        try:
            self._model.model_validate_json(json.dumps(arguments))  # strict, and a time is text
        except ValidationError as error:
            takes = ", ".join([*self.required, *self.optional]) or "no arguments"
            return f"{first_problem(error)}; it takes {takes}"
        return None
