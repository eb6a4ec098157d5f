"""The plugin on the documentation's page is one: copied as it stands, it passes the doctor."""

import re
from pathlib import Path

import pytest
from cli_support import invoke

pytestmark = pytest.mark.thorough

PAGE = Path(__file__).parents[2] / "docs" / "plugin.md"


def test_the_pages_example_passes_the_doctor(add_plugin, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "def memslot_describe" in block)
    add_plugin("mine", code)
    file = tmp_path / "memory.yaml"
    assert invoke("setup", file, "--backend", "mine").exit_code == 0
    result = invoke("doctor", file, "--strict")
    assert result.exit_code == 0, result.output
    assert "12 of 13 checks passed; skipped: models" in result.stdout
