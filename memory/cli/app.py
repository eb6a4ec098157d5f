"""The command line as a whole: its commands by name, and its global options."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from memory.cli import backends, data, doctor, example, hosts, results, run, setup
from memory.cli._group import CommandGroup, ToolGroup

app = typer.Typer(
    name="memslot",
    cls=CommandGroup,
    context_settings={"max_content_width": 110},
    help="The memory slot for AI agents: use, check, measure and extend memory backends.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from memory import __version__

        typer.echo(f"memslot {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("report")(results.report)
app.command("view")(results.view)
app.command("setup")(setup.setup)
app.command("example")(example.example)
tools = typer.Typer(
    cls=ToolGroup,
    help="Rarely needed: plugins of your own, agents, data sets.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
tools.command("hosts")(hosts.hosts)
tools.add_typer(backends.commands, name="config")
tools.add_typer(data.commands, name="data")
app.add_typer(tools, name="tools")
