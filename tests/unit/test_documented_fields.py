"""What a public type holds is documented where the API reference shows it."""

import dataclasses
import inspect
import re

import pytest
from pydantic import BaseModel

import memory
import memory.adapter


def fields(kind):
    names = (
        kind.model_fields if issubclass(kind, BaseModel) else [one.name for one in dataclasses.fields(kind)]
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
    assert {one for names in listed for one in names.split(", ")} >= fields(TYPES[name])
