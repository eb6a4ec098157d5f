"""``memslot setup``: a configuration from the plugin's own options model, and an agent that remembers by it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from memory import ConfigError, InputError
from memory.cli.backends import complete_provider
from memory.cli.hosts import complete_host
from memory.plugins.console import AsJson, print_json, say

if TYPE_CHECKING:
    from pydantic import BaseModel


OPENAI = "https://api.openai.com/v1"


def setup(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")] = Path("memslot.yaml"),
    host: Annotated[
        str | None,
        typer.Option(help="The agent; see 'memslot hosts'. none for no agent.", autocompletion=complete_host),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="The memory, a backend or a condition; see 'memslot backends'. Default: mem0.",
            autocompletion=complete_provider,
        ),
    ] = None,
    condition: Annotated[
        str | None,
        typer.Option(help="The memory, where a backend has the same name.", autocompletion=complete_provider),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="OLD", help="Keep all of this configuration but its provider."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where embedded stores live.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Write every option with its default and what it means.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask for agent, memory, place and model; write the configuration and the agent's lines, and check them.

    It does not ask for anything that an option names. Where there is no terminal, it takes the defaults, and writes
    without a check.
    """
    from memory.cli._template import render
    from memory.cli.doctor import doctor
    from memory.doctor.hints import hides_us
    from memory.hosts._table import HOSTS
    from memory.plugins.blocks import load_yaml
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry, missing_modules

    if backend is not None and condition is not None:
        raise InputError("--backend and --condition are both given; one provider is active at a time")
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; give another name, or --force to replace it")
    host = host or _ask(f"agent ({', '.join(HOSTS)}, or none)", "none")
    if host != "none" and host not in HOSTS:
        raise InputError(f"no host {host!r}; there are: {', '.join(HOSTS)}, none")
    name = condition or backend or _ask("memory ('memslot backends' lists them)", "mem0")
    info = MemoryAdapterRegistry().info(name, None if condition is None else "control")
    if source is None:
        place = data_dir or _ask("directory for its data", ".memslot")
        answers = {**_ask_model(info.options), **_ask_required(info.options)}
        text = render(info, None, answers, data_dir=str(place), full=full)
    else:
        load_config(source)
        carried = load_yaml(source)[0]  # variables in it unread
        text = render(info, carried, _ask_required(info.options), full=full)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    report: dict[str, str] = {"wrote": str(path)}
    try:
        load_config(path).parse_options(info.options)
    except ConfigError as error:
        report["to be filled in"] = str(error)
    if missing := missing_modules(info):
        report["to be installed"] = info.install or ", ".join(missing)
    if hidden := hides_us(Path.cwd(), path.parent):
        report["hidden"] = hidden
    report["next"] = f"memslot doctor {shlex.quote(str(path))}"
    if as_json:
        print_json({key.replace(" ", "_"): text for key, text in report.items()})
        return
    for key, text in report.items():
        say(f"{key} {text}" if key == "wrote" else f"{key}: {text}")
    if host != "none":
        _write_host(host, path)
    if not on_a_terminal():
        return
    doctor(context, path)
    say("")
    say("Now say to your agent:  I like oolong tea.")
    say("Start it again, and ask:  Which tea do I like?")


def on_a_terminal() -> bool:
    """Whether somebody can answer."""
    return sys.stdin.isatty()


def _ask(what: str, default: Any) -> Any:
    return typer.prompt(what, default=default) if on_a_terminal() else default


def _write_host(name: str, config: Path) -> None:
    from memory.hosts._installing import FOLDERS
    from memory.hosts._table import HOSTS

    host = HOSTS[name]
    if host.distribution and (host.untested or not host.installed):
        say(f"to be installed: {host.untested or host.install}")
    if name in FOLDERS:
        try:
            for line in FOLDERS[name](None).install(config.absolute()):
                say(line)
        except ConfigError as error:
            say(f"to be done: memslot hosts {name} install ({error})")
        return
    program = host.program(str(config.absolute()))
    if program.startswith(("#", "{")):
        typer.echo(program, nl=False)
        return
    file = config.with_name(f"{host.module}_agent.py")
    if file.exists():
        say(f"{file} exists and stays; 'memslot hosts {name}' prints what it would be")
        return
    file.write_text(program, encoding="utf-8")
    say(f"wrote {file}; the lines that end with '# yours' are your model")


def _ask_required(options: type[BaseModel]) -> dict[str, Any]:
    """Ask for every option that its plugin cannot do without; each with what would be written unasked."""
    answers: dict[str, Any] = {}
    if not on_a_terminal():
        return answers
    for name, field in options.model_fields.items():
        example = field.examples[0] if field.examples else _first(field.annotation)
        if not (field.examples or field.is_required()) or isinstance(example, (list, tuple)):
            continue
        if isinstance(example, Mapping):
            answers[name] = {key: _ask(f"{name}.{key}", value) for key, value in example.items()}
        else:
            answers[name] = _ask(name, example)
    return answers


def _ask_model(options: type[BaseModel]) -> dict[str, Any]:
    """Ask which model the backend may use, where it may do without one."""
    field = options.model_fields.get("llm")
    if field is None or field.examples or field.is_required():
        return {}
    model = _ask("model, or none", "none")
    if model == "none":
        return {}
    return {"llm": {"model": model, "base_url": _ask("its OpenAI-compatible base URL", OPENAI)}}


def _first(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Literal else None
