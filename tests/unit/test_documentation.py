"""The pages: links of the README lead somewhere, and a command that fails names its section of the troubles."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from cli_support import error_line, invoke

import memory
from memory.cli._anchors import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PLACEHOLDER = "https://example.invalid/memslot"


def test_every_link_of_the_readme_is_absolute_on_the_index_and_leads_to_a_file():
    for_the_index = runpy.run_path(str(ROOT / "setup.py"))["for_the_index"]
    shown = for_the_index((ROOT / "README.md").read_text("utf-8"), "https://host.example/project")
    addresses = [
        *re.findall(r"\]\(([^)\s]+)\)", shown),
        *re.findall(r"^\[[^\]]+\]: (\S+)", shown, re.MULTILINE),
    ]
    assert len(addresses) > 20
    for address in addresses:
        found = re.fullmatch(r"https://host\.example/project/(?:blob|raw)/main/(.+)", address)
        assert found, address
        assert (ROOT / found[1]).is_file(), address
    assert "/raw/main/docs/turn.svg" in shown, "a picture, not the page of one"


def test_the_addresses_of_the_project_stand_in_one_place():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert urls["Repository"].startswith("https://")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if PLACEHOLDER in page.read_text("utf-8")] == []


def test_the_one_install_of_the_readme_is_enough_to_chat():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert any(each.startswith("jsonschema") for each in extras["mem0"]), "what a session's tools need"


def test_no_page_relies_on_a_folder_that_a_wheel_lacks() -> None:
    # The page of results says where the plugins lie that were run, and asks nobody to open them.
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "conformance-results.md"]
    shipped = [*(ROOT / "configs").glob("*.yaml"), *(ROOT / "examples").glob("*.py")]
    lacking = re.compile(r"\b(configs|examples)/")
    relying = [
        page for page in (ROOT / "README.md", *pages, *shipped) if lacking.search(page.read_text("utf-8"))
    ]
    assert relying == []


@pytest.mark.thorough
def test_the_picture_shows_the_quickstarts_report(tmp_path):
    run = invoke("run", ROOT / "configs" / "quickstart.yaml", "--out", tmp_path, "--json")
    found = {
        each["label"]: next(
            one["estimate"]["value"] for one in each["measures"] if one["name"] == "read right"
        )
        for each in json.loads(run.stdout)["metrics"]["providers"]
    }
    picture = (ROOT / "docs" / "turn.svg").read_text("utf-8")
    names = re.findall(r"<text x=\"400\" y=\"\d+\">([a-z_]+)</text>", picture)
    shares = re.findall(r">([\d.]+) %</text>", picture)
    assert {name: float(share) for name, share in zip(names, shares, strict=True)} == {
        name.removesuffix("_ipas"): round(100 * value, 1) for name, value in found.items()
    }


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
