"""Honcho 3's deriver: ``{"explicit": [{"content"}]}`` from the target peer's messages, each as it was said."""

from __future__ import annotations

import re

from memory.testing.scripted_rules import ChatRequest, Reply, Rule
from memory.testing.scripted_text import is_statement, sentences

__all__ = ["rules"]

_TARGET = re.compile(r"^Target peer:\n(?P<peer>[\w-]+)$", re.M)
_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* (?P<peer>[\w-]+): ", re.M)


def _derive(request: ChatRequest) -> Reply | None:
    if request.schema_name != "PromptRepresentation":
        return None
    _, found_block, block = request.text.rpartition("\n<messages>\n")
    target = _TARGET.search(request.text)
    if target is None or not found_block:
        return None
    pieces = _LINE.split(block.partition("\n</messages>")[0])[1:]
    found: dict[str, None] = {}
    for peer, text in zip(pieces[::2], pieces[1::2], strict=True):
        if peer == target["peer"]:
            said = (one for one in sentences(text) if is_statement(one, "user"))
            found.update(dict.fromkeys(f"{peer} stated: {one}" for one in said))
    return {"explicit": [{"content": content} for content in found]}


rules: tuple[Rule, ...] = (_derive,)
