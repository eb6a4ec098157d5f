"""``memslot example``: writes an example program or configuration into a directory of the user."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from memory import ConfigError, InputError
from memory.plugins.console import AsJson, print_json, say


def example(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The example; all are listed without.")
    ] = None,
    into: Annotated[Path, typer.Option(help="The directory to write it into.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an example program or configuration."""
    found = _examples()
    if name is None:
        if as_json:
            print_json(sorted(found))
            return
        for each in sorted(found):
            say(each)
        return
    if name not in found:
        raise InputError(f"no example {name!r}; there are: {', '.join(sorted(found))}")
    target = into / found[name].name
    if target.exists() and not force:
        raise ConfigError(f"{target} exists; give another directory, or --force to replace it")
    try:
        shutil.copyfile(found[name], target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written ({error.strerror})") from error
    if as_json:
        print_json({"wrote": str(target)})
    else:
        say(f"wrote {target}")


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
