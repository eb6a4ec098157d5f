"""Every test in a directory of its own: a memory lies below the working directory unless it is told where."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh one; what a test leaves there, no other finds."""
    monkeypatch.chdir(tmp_path)
