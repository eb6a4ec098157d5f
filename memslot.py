"""The name memslot is installed under. What a host needs stands here as in :mod:`memory`, the package itself.

``memory`` and ``conditions`` are names that other distributions use too. Installed beside memslot, one of them can
take its place; then a sentence says which it is and how that is mended, in place of an import error of its own.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory import *  # noqa: F403

PACKAGES = ("memory", "conditions")


def main() -> None:
    """The ``memslot`` command; ends the process with its exit code (2 where another package is in the way)."""
    if (problem := _taken()) is not None:
        sys.exit(f"error: {problem}")
    from memory.cli import main as run

    run()


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__" and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (problem := _taken()) is not None:
        raise ImportError(problem)
    import memory

    return getattr(memory, name)


def _taken() -> str | None:
    """Which package is not ours, and what to do about it; None where both are."""
    for package in PACKAGES:
        spec = find_spec(package)
        origin = Path(spec.origin) if spec is not None and spec.origin else None
        if origin is None or not _ours(origin, package):
            return _sentence(package, origin)
    return None


def _ours(origin: Path, package: str) -> bool:
    beside = Path(__file__).resolve().parent / package / "__init__.py"
    marked = origin.is_file() and origin.read_text(encoding="utf-8", errors="replace").startswith(
        '"""memslot'
    )
    return marked and origin.resolve() == beside


def _sentence(package: str, origin: Path | None) -> str:
    from importlib.metadata import packages_distributions

    others = sorted({name for name in packages_distributions().get(package, ()) if name != "memslot"})
    again = "pip install --force-reinstall --no-deps memslot"
    if others:
        remove = f"pip uninstall {' '.join(others)}"
        return (
            f"{', '.join(others)} has its own package {package!r}, which hides memslot's; {remove} && {again}"
        )
    if origin is None:
        return f"memslot's package {package!r} is missing; {again}"
    return f"{origin} hides memslot's package {package!r}; rename it, or start from another directory"


if __name__ == "__main__":
    main()
