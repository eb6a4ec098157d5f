"""``memslot example``: writes an example program or configuration into the working directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from memory import ConfigError, InputError
from memory.plugins.console import say


def example(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The example; all are listed without.")
    ] = None,
) -> None:
    """Write an example program or configuration here."""
    found = _examples()
    if name is None:
        for each in sorted(found):
            say(each)
        return
    if name not in found:
        raise InputError(f"no example {name!r}; there are: {', '.join(sorted(found))}")
    if Path(name).exists():
        raise ConfigError(f"{name} exists; rename it, or go to another directory")
    try:
        shutil.copyfile(found[name], name)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be written ({error.strerror})") from error
    say(f"wrote {name}")


def _examples() -> dict[str, Path]:
    """The examples of the installed package, or else of this checkout: file name -> path."""
    from importlib.metadata import PackageNotFoundError, files  # slow, and other commands do without it

    try:
        shipped = [
            Path(str(file.locate())) for file in files("memslot") or () if "/share/memslot/" in str(file)
        ]
    except PackageNotFoundError:
        shipped = []
    root = Path(__file__).parents[2]
    found = shipped or [*root.glob("examples/*.py"), *root.glob("configs/*.*")]
    return {path.name: path for path in found if path.suffix != ".pyc"}  # pip compiles installed programs
