"""Honcho 3's deriver: ``{"explicit": [{"content"}]}`` from the target peer's messages, each as it was said."""

import re

from memory.adapter._scripted_text import is_question, sentences

_WORD = re.compile(r"[\u3040-\u9fff\uac00-\ud7af]|[^\W_]+")
_TARGET = re.compile(r"^Target peer:\n(?P<peer>[\w-]+)$", re.M)
_LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* (?P<peer>[\w-]+): ", re.M)


def concluded(peer, text):
    """What is concluded of what a peer says: all of it, as the prompt asks, but of "Yes." or "Is it?" nothing."""
    for sentence in sentences(text):
        if len(_WORD.findall(sentence)) >= 3:
            yield f"{peer} {'asked' if is_question(sentence) else 'stated'}: {sentence}"


def _derive(request):
    if request.schema_name != "PromptRepresentation":
        return None
    _, found_block, block = request.text.rpartition("\n<messages>\n")
    target = _TARGET.search(request.text)
    if target is None or not found_block:
        return None
    pieces = _LINE.split(block.partition("\n</messages>")[0])[1:]
    found = {}
    for peer, text in zip(pieces[::2], pieces[1::2], strict=True):
        if peer == target["peer"]:
            found.update(dict.fromkeys(concluded(peer, text)))
    return {"explicit": [{"content": content} for content in found]}


rules = (_derive,)
