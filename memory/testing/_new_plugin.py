"""``memslot tools new-plugin``: writes a package that passes its tests. Its comments say what to replace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from memory.contract.errors import InputError
from memory.plugins.console import say

TEMPLATES = Path(__file__).parent / "_templates"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_WORD = re.compile(r"\b(?:test_|Test)?(PLUGIN|MODULE|CLASS|DISTRIBUTION|KIND|ENTRY)\b")
_ENTRY = """
# This is the whole registration: users write the name on the left.
[project.entry-points."{group}"]
{name} = "{target}"
"""
PluginKind = Literal["backend", "condition", "command", "host"]
_GROUPS: dict[str, tuple[str, str]] = {
    "backend": ("memslot.backends", "{module}"),
    "condition": ("memslot.conditions", "{module}"),
    "command": ("memslot.commands", "{module}:commands"),
}
_PLACES = {
    "module.py": "src/{module}/__init__.py",
    "conformance.py": "src/{module}/conformance.py",
    "test_plugin.py": "tests/test_{name}.py",
    "workflow.yml": ".github/workflows/tests.yml",
}
commands = typer.Typer(add_completion=False, rich_markup_mode=None)


@commands.command()
def new_plugin(
    name: Annotated[
        str, typer.Argument(help="What users will write in YAML: lower case, digits, underscores.")
    ],
    kind: Annotated[PluginKind, typer.Option(help="What it is.")] = "backend",
    into: Annotated[Path | None, typer.Option(help="The new directory; default: memslot-NAME.")] = None,
) -> None:
    """Write a plugin package that passes the conformance kit. Its comments say what to replace."""
    if not _NAME.fullmatch(name):
        raise InputError(f"NAME: {name!r} must be a-z, 0-9 and _, begin with a letter, at most 40 characters")
    root = into or Path(f"memslot-{name.replace('_', '-')}")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"--into: {root} exists and is not empty; name another directory")
    for path, text in package(name, kind).items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    say(f"{root}: a {kind} that passes its tests as it stands. Next:")
    say(f"  cd {root} && pip install -e '.[test]' && pytest")
    if kind in ("backend", "condition"):
        say(f"  memslot setup my.yaml --{kind} {name} && memslot tools conform my.yaml")
    say("  then replace what the comments mark REPLACE")


def package(name: str, kind: PluginKind) -> dict[str, str]:
    """Path -> text of every file of a new package."""
    module = f"memslot_{name}"
    words = {
        "PLUGIN": name,
        "MODULE": module,
        "CLASS": "".join(part.capitalize() for part in name.split("_") if part),
        "DISTRIBUTION": f"memslot-{name.replace('_', '-')}",
        "KIND": kind,
        "ENTRY": "",
    }
    if kind in _GROUPS:
        group, target = _GROUPS[kind]
        words["ENTRY"] = _ENTRY.format(group=group, name=name, target=target.format(module=module))

    def filled(match: re.Match[str]) -> str:
        return match[0].replace(match[1], words["CLASS" if match[0].startswith("Test") else match[1]])

    found = {f"src/{module}/py.typed": ""}
    for folder in ("common", kind):
        for template in sorted((TEMPLATES / folder).glob("*.tmpl")):
            place = _PLACES.get(template.stem, template.stem).format(module=module, name=name)
            found[place] = _WORD.sub(filled, template.read_text(encoding="utf-8"))
    return found
