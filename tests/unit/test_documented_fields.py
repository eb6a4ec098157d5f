"""What a public type holds is documented where the API reference shows it."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

import memory
import memory.adapter
from memory.bench.scores.figures import FIGURES


def fields(kind):
    names = (
        kind.model_fields
        if issubclass(kind, BaseModel)
        else [field.name for field in dataclasses.fields(kind)]
    )
    return {name for name in names if not name.startswith("_")}


TYPES = {
    f"{page.__name__}.{name}": kind
    for page in (memory, memory.adapter)
    for name in page.__all__
    if inspect.isclass(kind := getattr(page, name))
    and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind))
    and fields(kind)
}


@pytest.mark.parametrize("name", TYPES)
def test_every_field_of_a_public_type_is_documented(name):
    listed = re.findall(r"^    ([\w, ]+): ", inspect.getdoc(TYPES[name]), re.MULTILINE)
    assert {field for names in listed for field in names.split(", ")} >= fields(TYPES[name])


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_is_named_where_the_figures_are_explained(name):
    page = Path(memory.__file__).parents[1] / "docs" / "experiment.md"
    table = re.findall(r"^\|[^|]*\|([^|]*)\|[^|]*\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    parted = {part.strip() for row in table for sign in ",;" for part in row.split(sign)}
    assert name in parted
