"""``memslot setup``: writes a configuration from the plugin's options model, and an agent that uses it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from memory import ConfigError, InputError
from memory.plugins.console import AsJson, print_json, say

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memory.plugins.hookspecs import PluginInfo


OPENAI = "https://api.openai.com/v1"
_MEASURED_S = 600.0  # longest write of a model that is being timed


def setup(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file to write.")] = Path("memslot.yaml"),
    host: Annotated[
        str | None, typer.Option(help="The agent; see 'memslot tools hosts'. none for no agent.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="The memory, a backend or a condition; see 'memslot doctor'. Default: mem0."),
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
    """Write a configuration and your agent's lines, and check them.

    It asks for agent, memory, place and model, unless an option names them. Without a terminal it takes the
    defaults and checks nothing.
    """
    from memory.cli._template import render
    from memory.cli.doctor import checked as doctor
    from memory.doctor.hints import hides_us
    from memory.hosts.table import HOSTS
    from memory.plugins.blocks import load_yaml
    from memory.plugins.config import load_config
    from memory.plugins.registry import MemoryAdapterRegistry
    from memory.slot.calls import Deadlines

    if path.exists() and not force:
        raise ConfigError(f"{path} exists; give another name, or --force to replace it")
    host = host or _ask(f"agent ({', '.join(HOSTS)}, or none)", "none")
    if host != "none" and host not in HOSTS:
        raise InputError(f"no host {host!r}; there are: {', '.join(HOSTS)}, none")
    name = backend or _ask("memory ('memslot doctor' lists them)", "mem0")
    info = MemoryAdapterRegistry().info(name)
    if source is None:
        place = data_dir or _ask("directory for its data", ".memslot")
        text = render(info, None, _answers(info.options), data_dir=str(place), full=full)
    else:
        load_config(source)
        carried = load_yaml(source)[0]  # with variables as written
        text = render(info, carried, _required_answers(info.options), full=full)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    report: dict[str, str] = {"wrote": str(path)}
    try:
        load_config(path).parse_options(info.options)
    except ConfigError as error:
        report["to be filled in"] = str(error)
    block = (load_yaml(path)[0]["memory"].get("backends") or {}).get(name) or {}
    if install := _to_install(info, block):
        report["to be installed"] = install
    if _needs_openai_key(block):
        report["to be set"] = "the variable OPENAI_API_KEY"
    if hidden := hides_us(Path.cwd(), path.parent):
        report["hidden"] = hidden
    ready = report.keys() <= {"wrote", "hidden"}
    doctor_line = f"memslot doctor {shlex.quote(str(path))}"
    report["next"] = doctor_line
    if as_json:
        print_json({key.replace(" ", "_"): text for key, text in report.items()})
        return
    if checked := ready and on_a_terminal():
        del report["next"]
    for key, text in report.items():
        say(f"{key} {text}" if key == "wrote" else f"{key}: {text}")
    if host != "none":
        _write_host(host, path)
    if not checked:
        return
    try:
        needed_s = doctor(context, path, write_s=_MEASURED_S).write_s
    except typer.Exit:
        say(f"next: change {path} where a line above says so, then {doctor_line}")
        raise
    if needed_s is not None and needed_s > Deadlines().write_s:
        _write_deadline(path, needed_s)
    if host == "none":
        say(f"next: memslot chat {shlex.quote(str(path))}")
    else:
        say("next: say to your agent: I like oolong tea. Start it again, and ask: Which tea do I like?")


def _write_deadline(path: Path, needed_s: int) -> None:
    """Write the deadline that the model needs into the file, unless the file already has deadlines."""
    text = path.read_text("utf-8")
    if re.search(r"^  deadlines:", text, re.M):
        return
    path.write_text(text.replace("memory:\n", f"memory:\n  deadlines: {{write_s: {needed_s}}}\n", 1), "utf-8")
    say(f"wrote memory.deadlines.write_s: {needed_s}, three times what the slower of two writes took")


def _to_install(info: PluginInfo, block: Mapping[str, Any]) -> str:
    """The pip commands for everything that the memory, or a model in this process, lacks."""
    from memory.plugins.registry import missing_modules

    missing = [info.install or ", ".join(modules)] if (modules := missing_modules(info)) else []
    embedder = block.get("embedder")
    local = isinstance(embedder, Mapping) and embedder.get("provider") == "local"
    if local and importlib.util.find_spec("fastembed") is None:
        missing.append("pip install 'memslot[local]'")
    return "; ".join(missing)


def _needs_openai_key(block: Mapping[str, Any]) -> bool:
    llm = block.get("llm")
    if not isinstance(llm, Mapping) or llm.get("api_key") or os.environ.get("OPENAI_API_KEY"):
        return False
    return bool(llm.get("base_url", OPENAI) == OPENAI)


def on_a_terminal() -> bool:
    """Whether a user can answer questions."""
    return sys.stdin.isatty()


def _ask(what: str, default: Any) -> Any:
    return typer.prompt(what, default=default) if on_a_terminal() else default


def _write_host(name: str, config: Path) -> None:
    from memory.hosts._coding_agents import FOLDERS
    from memory.hosts.table import HOSTS

    host = HOSTS[name]
    if host.distribution and (host.untested or not host.installed):
        say(f"to be installed: {host.untested or host.install}")
    if name in FOLDERS:
        try:
            for line in FOLDERS[name](None).install(config.absolute()):
                say(line)
        except ConfigError as error:
            say(f"to be done: memslot tools hosts {name} install ({error})")
        return
    program = host.program(str(config.absolute()))
    if program.startswith(("#", "{")):
        typer.echo(program, nl=False)
        return
    file = config.with_name(f"{host.module}_agent.py")
    if file.exists():
        say(f"{file} exists and stays; 'memslot tools hosts {name}' prints what it would be")
        return
    file.write_text(program, encoding="utf-8")
    say(f"wrote {file}; the lines that end with '# yours' are your model")


def _answers(options: type[BaseModel]) -> dict[str, Any]:
    """Ask which model and which embedder a backend uses if it can do without, then for all it requires."""
    answers: dict[str, Any] = {}
    llm, embedder = options.model_fields.get("llm"), options.model_fields.get("embedder")
    if llm is not None and not (llm.examples or llm.is_required()):
        model = _ask("model, or none", "none")
        if model != "none":
            address = _ask("its OpenAI-compatible base URL", OPENAI)
            answers["llm"] = {"model": model, "base_url": address}
    if embedder is not None and embedder.default == "lexical":
        given = _ask("embedder: lexical (shared words), or local (a model in this process)", "lexical")
        if given == "local":
            path = _ask("directory of its ONNX model, or none to download the default once (0.22 GB)", "none")
            own = {} if path == "none" else {"model": Path(path).name, "path": path}
            answers["embedder"] = {"provider": "local", **own}
        elif given != "lexical":
            raise InputError(
                f"embedder: {given!r} is neither lexical nor local; a model behind an endpoint goes into the file"
            )
    return answers | _required_answers(options)


def _required_answers(options: type[BaseModel]) -> dict[str, Any]:
    """Ask for every required option, with its example as the default."""
    answers: dict[str, Any] = {}
    for name, field in options.model_fields.items():
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else (None,)
        example = (field.examples or choices)[0]
        if not (field.examples or field.is_required()) or isinstance(example, (list, tuple)):
            continue
        if isinstance(example, Mapping):
            answers[name] = {key: _ask(f"{name}.{key}", value) for key, value in example.items()}
        else:
            answers[name] = _ask(name, example)
    return answers if on_a_terminal() else {}
