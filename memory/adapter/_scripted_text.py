"""The scripted LLM's simple rules for words, sentences and statements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W_]+(?:['’][^\W\d_]+)?")
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?](?!\s|$)[^.!?。！？\n]*)*[.!?。！？]*")
_PERSON = re.compile(r"\b(?:i|i['’]\w+|me|my|mine|myself|we|we['’]\w+|our|ours|us)\b|我|咱|俺", re.I)
_ADVICE = re.compile(r"\b(?:recommend|suggest|advise)\w*\b|建议|推荐", re.I)
_PARSING = Lock()
_STOP = frozenset(
    re.findall(
        r"\S+",
        "a an and are as at be been but by can could did do does for from had has have he her his how i i'm "
        "i've if in is it its me my of on or our she should so than that the their them then there they this "
        "to us was we were what when where which who whom why will with would you your 的 了 我 你 吗 呢 是",
    )
)


def content_words(text: str) -> list[str]:
    """Lower-case words that carry meaning, in order; each CJK character is a word."""
    return [word for word in _WORD.findall(text.casefold().replace("’", "'")) if word not in _STOP]


def lexical_overlap(query: str, text: str) -> float:
    """The share of the query's distinct content words that occur in ``text``: 0.0 to 1.0."""
    wanted = set(content_words(query))
    return len(wanted & set(content_words(text))) / len(wanted) if wanted else 0.0


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, trimmed. A full stop inside a number or a name does not end one."""
    return filter(None, (match.group().strip() for match in _SENTENCE.finditer(text)))


def is_question(sentence: str) -> bool:
    return sentence.rstrip().endswith(("?", "？"))


def is_statement(sentence: str, role: str) -> bool:
    """Whether a sentence is worth remembering: a user's about themselves, or advice of another role."""
    if is_question(sentence) or len(_WORD.findall(sentence)) < 3:
        return False
    return bool((_PERSON if role.lower() == "user" else _ADVICE).search(sentence))


def estimate_tokens(text: str) -> int:
    """The number of tokens, at four UTF-8 bytes each."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def python_literal(text: str) -> Any:
    """Parse a Python literal. One thread at a time, because CPython 3.11 mixes up the recursion depths."""
    with _PARSING:
        return ast.literal_eval(text)
