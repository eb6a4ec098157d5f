"""The README as the package index shows it. Its links lead to the repository that [project.urls] names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


def for_the_index(text: str, repository: str) -> str:
    """A README whose links and pictures have absolute addresses, below the repository's own."""
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{repository}/raw/main/", text)
    text = re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{repository}/blob/main/", text)
    return re.sub(r"^(\[[^\]]+\]: )(?!https?:)", rf"\1{repository}/blob/main/", text, flags=re.MULTILINE)


if __name__ == "__main__":
    urls = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=for_the_index(readme, urls["Repository"]),
        long_description_content_type="text/markdown",
    )
