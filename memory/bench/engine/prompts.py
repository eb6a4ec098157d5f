"""The prompts of the roles: ours, or a file of the user's in their place. Their hashes stand in the manifest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from memory.bench.data.nodes import canonical_hash
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
_OPTIONAL: Mapping[RoleName, tuple[str, ...]] = {
    "assistant": ("now",),
    "simulator": ("life_context", "constraint", "branch", "hint"),
    "judge": ("goal",),
    "reader": ("now",),
    "answer_judge": ("rule", "kind"),
}
_RULE = re.compile(r"^== (\S+)\n", re.MULTILINE)


def kind_of(category: str) -> QuestionKind:
    """The kind of question for a data set's category; ``open`` if the category is unknown."""
    return _OF_CATEGORY.get(category.casefold(), "open")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one role.

    Attributes:
        text: with placeholders such as ``{question}``. Other braces are text.
        sha256: hex, of the file.
        version: counts up with each change of ours; None for a file of the user's.
        rules: kind of question -> what the prompt's ``{rule}`` says of it; empty but for our answer judge.
    """

    role: RoleName
    text: str
    sha256: str
    version: int | None
    rules: tuple[tuple[str, str], ...] = ()

    def fill(self, **values: str) -> str:
        """The prompt with its placeholders replaced, all at once, so that a value cannot hold one."""
        names = "|".join((*_NEEDED[self.role], *_OPTIONAL[self.role]))
        return re.sub(rf"\{{({names})\}}", lambda match: values.get(match[1], ""), self.text)


@cache
def load_prompt(role: RoleName, file: Path | None = None) -> Prompt:
    """Our prompt of a role, or the one in ``file``.

    Raises:
        ConfigError: the file cannot be read, or lacks a placeholder that the role needs.
    """
    raw = _read(role, file)
    text, version, rules = raw.decode("utf-8"), None, list[str]()
    if file is None:
        first, _, text = text.partition("\n")
        version = int(first.removeprefix("version:"))
        text, *rules = _RULE.split(text)
    missing = [f"{{{name}}}" for name in _NEEDED[role] if f"{{{name}}}" not in text]
    if missing:
        raise ConfigError(f"bench.roles.{role}.prompt: {file} lacks the placeholder {', '.join(missing)}")
    named = tuple(zip(rules[::2], (rule.strip() for rule in rules[1::2]), strict=True))
    return Prompt(role, text.strip(), hashlib.sha256(raw).hexdigest(), version, named)


def _read(role: RoleName, file: Path | None) -> bytes:
    try:
        raw = (file or Path(__file__).parent / "prompts" / f"{role}.md").read_bytes()
        raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"bench.roles.{role}.prompt: {file} cannot be read ({why})") from None
    return raw


Prompts = Path | Mapping[QuestionKind, Path] | None
"""A role's ``prompt`` setting: ours, one file, or a file for each kind of question that has one."""


def prompts_of(role: RoleName, given: Prompts) -> dict[str, Prompt]:
    """Kind of question -> prompt. Roles that answer no questions have the same for each kind."""
    files = given if isinstance(given, Mapping) else dict.fromkeys(KINDS, given)
    return {kind: load_prompt(role, files.get(kind)) for kind in KINDS}


def prompt_hash(role: RoleName, given: Prompts) -> tuple[str, int | None]:
    """The hash for the manifest, hex, and the version: None where a file of the user's is in use."""
    prompts = prompts_of(role, given)
    if len(set(prompts.values())) == 1:
        return prompts[KINDS[0]].sha256, prompts[KINDS[0]].version
    return canonical_hash({kind: prompt.sha256 for kind, prompt in prompts.items()}), None
