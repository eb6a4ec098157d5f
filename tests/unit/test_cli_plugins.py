"""Commands that other distributions add to ``memslot`` by the entry-point group ``memslot.commands``."""

from importlib.metadata import entry_points

import pytest
from cli_support import entry_point, error_line, invoke

from memory.cli._group import FORMER_NAMES
from memory.plugins import installed


@pytest.fixture
def add_command(tmp_path, monkeypatch):
    """Offers a command: its name, its module's source, and who ships it."""
    added = []
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installed, "entry_points", lambda group: [*entry_points(group=group), *added])

    def add(name, source, owner="memslot-extra"):
        added.append(entry_point(tmp_path, installed.GROUP, name, source, owner, within=":commands"))

    return add


WAVE = """
import typer
commands = typer.Typer(help="Wave to somebody.")
@commands.command()
def wave(name: str) -> None:
    typer.echo(f"waves to {name}")
"""


def test_a_plugin_adds_a_command(add_command):
    add_command("wave", WAVE)
    assert invoke("wave", "ada").stdout == "waves to ada\n"
    listing = invoke("--help").stdout
    assert listing.index("backends") < listing.index("wave")


@pytest.mark.parametrize(
    "group", ["", "journal", "tools", "tools config", "tools data", "tools signet", "tools stigmem"]
)
def test_the_list_of_commands_is_not_cut(group):
    result = invoke(*group.split(), "--help", env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines()[1:] if line.endswith("...")] == []


def test_a_plugins_help_looks_like_ours(add_command):
    add_command("wave", WAVE)
    help_text = invoke("wave", "--help").stdout
    assert help_text.startswith("Usage: ")
    assert "completion" not in help_text


def test_a_broken_command_is_named_and_breaks_nothing_else(add_command):
    add_command("broken", "raise RuntimeError('a secret of the plugin')")
    listing = invoke("--help")
    assert listing.exit_code == 0
    assert "broken" in listing.stdout
    said = error_line(invoke("broken"), 2)
    assert "memslot broken" in said
    assert "memslot-extra" in said
    assert "RuntimeError" in said
    assert "secret" not in said


def test_what_is_no_command_is_refused(add_command):
    add_command("odd", "commands = 5")
    assert "TypeError" in error_line(invoke("odd"), 2)


def test_two_distributions_with_one_name_are_both_named(add_command):
    add_command("wave", WAVE, "memslot-a")
    add_command("wave", WAVE, "memslot-b")
    said = error_line(invoke("wave", "ada"), 2)
    assert "memslot-a" in said
    assert "memslot-b" in said


def test_a_plugin_does_not_take_the_name_of_a_command_of_ours(add_command):
    add_command("doctor", WAVE)
    assert "mem0" in invoke("doctor").stdout


def test_listing_commands_for_one_imports_no_other(add_command):
    add_command("broken", "raise SystemExit(7)")
    assert invoke("--version").exit_code == 0
    assert error_line(invoke("nothing-of-this-name"), 2)


@pytest.mark.parametrize(("former", "now"), FORMER_NAMES.items())
def test_a_former_name_answers_with_the_command_of_today(former, now):
    assert (
        error_line(invoke(former, "memory.yaml", "--option"), 2)
        == f"memslot {former}: is now 'memslot {now}'"
    )
    command, *rest = now.split()
    assert (
        f" {rest[-1]} " in invoke(command, "--help").stdout
        if rest
        else invoke(command, "--help").exit_code == 0
    )
