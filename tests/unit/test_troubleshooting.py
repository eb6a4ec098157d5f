"""A command that fails names the section of the troubleshooting page, and each such section exists."""

import re
from pathlib import Path

from cli_support import error_line, invoke

import memory
from memory.cli._anchors import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
HEADINGS = {
    anchor: text for text, anchor in re.findall(r"^### (.+) \{ #([\w-]+) \}$", PAGE.read_text("utf-8"), re.M)
}
# memslot cannot add to the first error, which Python raises. The second is an answer of the page 'view'.
NOT_OF_A_COMMAND = {"hidden-package", "nothing-fits"}


def test_each_section_has_an_anchor_that_an_error_names():
    assert {*SECTIONS.values()} | NOT_OF_A_COMMAND == {*HEADINGS}
    assert PAGE.read_text("utf-8").count("\n### ") == len(HEADINGS)


def test_each_heading_quotes_an_error_of_the_code():
    room = Path(memory.__file__).parent
    code = "\n".join(file.read_text("utf-8") for file in room.rglob("*.py") if file.name != "_anchors.py")
    for words, anchor in SECTIONS.items():
        assert words in HEADINGS[anchor]
        assert words in code


def test_a_failed_command_names_its_section(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("memory: {}", "utf-8")
    assert error_line(invoke("tools", "config", "show", file), 2).endswith(
        "(more: troubleshooting#selects-nothing)"
    )
    assert "(more: troubleshooting#selects-nothing)" in invoke("doctor", file).stdout
    file.write_text("memory: {backend: '${NOT_THERE}'}", "utf-8")
    assert "(more: troubleshooting#missing-variable)" in invoke("doctor", file).stdout
    file.write_text("memry: {}", "utf-8")
    assert "troubleshooting" not in invoke("doctor", file).stdout
