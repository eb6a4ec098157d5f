"""The prompts of the roles: memslot's own, or the user's files. The manifest holds their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from memory.bench.data.reading import canonical_hash
from memory.contract.errors import ConfigError

RoleName = Literal["assistant", "simulator", "judge", "reader", "answer_judge"]
ROLES: tuple[RoleName, ...] = get_args(RoleName)
QuestionKind = Literal[
    "single-hop", "multi-hop", "temporal", "open", "abstention", "knowledge-update", "preference"
]
KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
_OF_CATEGORY: Mapping[str, QuestionKind] = {
    "open-domain": "open",
    "adversarial": "abstention",
    "single-session-user": "single-hop",
    "single-session-assistant": "single-hop",
    "single-session-preference": "preference",
    "multi-session": "multi-hop",
    "temporal-reasoning": "temporal",
    **{kind: kind for kind in KINDS},
}
_NEEDED: Mapping[RoleName, tuple[str, ...]] = {
    "assistant": ("context",),
    "simulator": ("goal",),
    "judge": ("wish", "conversation"),
    "reader": ("memory", "question"),
    "answer_judge": ("question", "answer", "reply"),
}
_RULE = re.compile(r"^== (\S+)\n", re.MULTILINE)


def kind_of(category: str) -> QuestionKind:
    """The kind of question for a data set's category; ``open`` if the category is unknown."""
    return _OF_CATEGORY.get(category.casefold(), "open")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one role.

    Attributes:
        text: holds placeholders such as ``{question}``. Other braces are text.
        sha256: of the file, in hex.
        rules: kind of question -> text for ``{rule}``; empty except in our answer judge's prompt.
    """

    role: RoleName
    text: str
    sha256: str
    rules: tuple[tuple[str, str], ...] = ()

    def fill(self, **values: str) -> str:
        """The prompt with all placeholders replaced at once, so that a placeholder in a value stays text."""
        return re.sub(rf"\{{({'|'.join(values)})\}}", lambda match: values[match[1]], self.text)


@cache
def load_prompt(role: RoleName, file: Path | None = None) -> Prompt:
    """memslot's prompt of a role, or the one in ``file``.

    Raises:
        ConfigError: the file cannot be read, or lacks a placeholder that the role needs.
    """
    try:
        raw = (file or Path(__file__).parent / "prompts" / f"{role}.md").read_bytes()
        text, rules = raw.decode("utf-8"), list[str]()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"bench.roles.{role}.prompt: {file} cannot be read ({why})") from None
    if file is None:
        text, *rules = _RULE.split(text)
    missing = [f"{{{name}}}" for name in _NEEDED[role] if f"{{{name}}}" not in text]
    if missing:
        raise ConfigError(f"bench.roles.{role}.prompt: {file} lacks the placeholder {', '.join(missing)}")
    named = tuple(zip(rules[::2], (rule.strip() for rule in rules[1::2]), strict=True))
    return Prompt(role, text.strip(), hashlib.sha256(raw).hexdigest(), named)


Prompts = Path | Mapping[QuestionKind, Path] | None
"""A role's ``prompt`` setting: None for memslot's own, one file, or files by kind of question."""


def prompts_of(role: RoleName, given: Prompts) -> dict[str, Prompt]:
    """Kind of question -> prompt. Roles that answer no questions have one prompt for all kinds."""
    files = given if isinstance(given, Mapping) else dict.fromkeys(KINDS, given)
    return {kind: load_prompt(role, files.get(kind)) for kind in KINDS}


def prompt_hash(role: RoleName, given: Prompts) -> str:
    """The hash for the manifest (hex): of the prompt, or of several prompts by kind."""
    hashes = {kind: prompt.sha256 for kind, prompt in prompts_of(role, given).items()}
    return hashes[KINDS[0]] if len(set(hashes.values())) == 1 else canonical_hash(hashes)
