"""The ``serve:`` block of a configuration."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from memory.contract._model import Id
from memory.plugins.hookspecs import PluginOptions
from memory.plugins.redaction import DataPath, Public
from memory.runtime._policy import TurnPolicy

# Whether one user's projects and agents share a memory, or are separate.
Isolate = Literal["shared", "strict"]
_MIN_TOKEN_LENGTH = 16


class TokenSettings(PluginOptions):
    """A bearer token, and whose memory it opens."""

    token: SecretStr = Field(repr=False)
    """Write ``${NAME}``; at least 16 characters."""
    persona_id: Id
    """Whose memory."""
    run_id: Id | None = None
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


class ServedPolicy(TurnPolicy):
    """The turn policy of a server. Recall excludes the session, because clients show it anyway."""

    exclude_session: bool = True


class ServeSettings(PluginOptions):
    """The ``serve:`` block."""

    host: Public[str] = "127.0.0.1"
    """Address to listen on. Anything but a loopback address needs tokens."""
    port: int = Field(default=3850, ge=0, le=65535)
    """Port to listen on; 0 takes a free one. 3850 is where Signet's clients look."""
    tokens: Tokens = Field(default_factory=list)
    """Who may ask, and for whose memory. None: whoever is on this machine, for ``memory.scope``."""
    tokens_file: DataPath | None = None
    """A YAML file with ``tokens``, in place of them; it is read at the start."""
    isolate: Isolate = "shared"
    """``shared``: a token has one memory for all projects and agents. ``strict``: every project and agent has a
    memory of its own that nothing else sees."""
    read_only: bool = False
    """Change nothing, whoever calls."""
    identity: dict[str, str] = Field(default_factory=lambda: {"name": "Agent"})
    """``name`` and ``description`` of the agent, told at a session's start."""
    max_body_bytes: int = Field(default=2_000_000, gt=0)
    """Of one request."""
    max_requests: int = Field(default=1000, gt=0)
    """Connections and requests at once; more are answered 503."""
    opentelemetry: bool = False
    """Send the trace of every call of the memory to OpenTelemetry, as its environment variables say."""
    body_s: float = Field(default=10.0, gt=0)
    """Seconds until the body of a request must have arrived."""
    policy: ServedPolicy = Field(default_factory=ServedPolicy)
    """What callers grant the memory, see ``TurnPolicy``."""

    @model_validator(mode="after")
    def _one_source_of_tokens(self) -> Self:
        if self.tokens and self.tokens_file:
            raise ValueError("tokens_file: tokens stands there as well; keep one of the two")
        return self
