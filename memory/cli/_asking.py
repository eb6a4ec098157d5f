"""What ``init --from`` and ``setup`` ask, and what they keep of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
import yaml
from pydantic import BaseModel

from memory import ConfigError
from memory.plugins.config import load_config


def read_carried(source: Path) -> Mapping[str, Any]:
    """A configuration as its YAML says, variables in it unread.

    Raises:
        ConfigError: it does not load.
    """
    load_config(source)
    content = yaml.safe_load(source.read_text("utf-8"))
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: a configuration is a mapping")
    return content


def ask_required(options: type[BaseModel]) -> dict[str, Any]:
    """Ask for every option that its plugin cannot do without; each with what would be written unasked."""
    answers: dict[str, Any] = {}
    for name, field in options.model_fields.items():
        example = field.examples[0] if field.examples else _first(field.annotation)
        if not (field.examples or field.is_required()) or isinstance(example, (list, tuple)):
            continue
        if isinstance(example, Mapping):
            answers[name] = {
                key: typer.prompt(f"{name}.{key}", default=value) for key, value in example.items()
            }
        else:
            answers[name] = typer.prompt(name, default=example)
    return answers


def ask_model(options: type[BaseModel]) -> dict[str, Any]:
    """Ask which model the backend may use, where it may do without one."""
    field = options.model_fields.get("llm")
    if field is None or field.examples or field.is_required():
        return {}
    model = typer.prompt("model, or none", default="none")
    if model == "none":
        return {}
    url = typer.prompt("its OpenAI-compatible base URL", default="https://api.openai.com/v1")
    return {"llm": {"model": model, "base_url": url}}


def _first(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Literal else None
