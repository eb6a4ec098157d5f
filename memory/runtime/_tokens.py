"""Bearer tokens, and whose memory each opens: in the configuration, or in a file that is read again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import AfterValidator, Field, SecretStr, field_validator

from memory.contract.errors import ConfigError
from memory.plugins.blocks import parse_block
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.variables import Problems
from memory.plugins.yaml import load_yaml

log = logging.getLogger(__name__)

_MIN_TOKEN_LENGTH = 16
_LOOK_S = 1.0


class TokenSettings(PluginOptions):
    """A bearer token, and whose memory it opens."""

    token: SecretStr = Field(repr=False)
    """Write ``${NAME}``; at least 16 characters."""
    persona_id: str
    """Whose memory."""
    run_id: str | None = None
    """Default: that of ``memory.scope``, else ``serve``."""
    read_only: bool = False
    """It may recall, and change nothing."""

    @field_validator("token")
    @classmethod
    def _long_enough(cls, token: SecretStr) -> SecretStr:
        text = token.get_secret_value()
        if len(text) < _MIN_TOKEN_LENGTH or text.split() != [text]:
            raise ValueError(f"must be at least {_MIN_TOKEN_LENGTH} characters without blanks")
        return token


def _one_owner_each(tokens: list[TokenSettings]) -> list[TokenSettings]:
    if len({token.token.get_secret_value() for token in tokens}) != len(tokens):
        raise ValueError("two of them are the same; give each user one")
    return tokens


Tokens = Annotated[list[TokenSettings], AfterValidator(_one_owner_each)]


class _TokensFile(PluginOptions):
    tokens: Tokens = Field(min_length=1)


def read_tokens(file: Path) -> list[TokenSettings]:
    """The tokens of a YAML file, below ``tokens:``, as they are.

    Raises:
        ConfigError: it cannot be read, or a token is wrong; values are not repeated.
    """
    content, lines = load_yaml(file)
    return parse_block(_TokensFile, content, "serve.tokens_file", Problems(file.name, lines)).tokens


async def watch_tokens(file: Path, changed: Callable[[list[TokenSettings]], None]) -> None:
    """Hand over what a file says whenever it was changed; while it cannot be read, what it said before goes on."""
    seen = _stamp(file)
    while True:
        await anyio.sleep(_LOOK_S)
        now = _stamp(file)
        if now == seen:
            continue
        seen = now
        try:
            changed(read_tokens(file))
            log.warning("serve.tokens_file was changed; its tokens are known from now on, and no others")
        except ConfigError as error:
            log.error("serve.tokens_file was changed and cannot be used, so nothing changes: %s", error)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        there = file.stat()
    except OSError:
        return None
    return there.st_ino, there.st_size, there.st_mtime_ns
