"""``memslot stigmem``: the Stigmem adapter ABI (Spec-19) for the hooks of agents that live in a shell.

By default these commands are middleware: without ``STIGMEM_URL`` they do nothing in silence, and whatever the node
does, they warn on stderr and exit with 0, so that no hook breaks its agent. With ``--process`` they fail as other
commands do: 2 without a URL or with bad input, 1 where the node failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory.plugins.console import AsJson, print_json
from memory.stigmem.commands import _intents
from memory.stigmem.commands._shared import AsProcess, attempt, from_stdin

if TYPE_CHECKING:
    from memory.stigmem.intents import Priority
    from memory.stigmem.queue import Ticket
    from memory.stigmem.writers import Surfaces, Write

__all__ = ["commands"]

commands = typer.Typer(
    help="Tell a Stigmem node what an agent does, and an agent what the node knows. For hooks: exits with 0 "
    "whatever the node does, unless --process is given. Reads STIGMEM_URL, STIGMEM_API_KEY and "
    "STIGMEM_SOURCE_ENTITY.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
commands.add_typer(_intents.commands, name="intent")

Wait = Annotated[
    float,
    typer.Option(help="Longest wait for the node, seconds; what is unsent by then is abandoned.", min=0.0),
]
Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's id or URI.", show_default=False)]
To = Annotated[
    str, typer.Option(help="URI of the agent or user, e.g. stigmem://node/agent/b.", show_default=False)
]
_OR_STDIN = "'-' reads it from stdin."


@commands.command()
def boot(
    user_entity: Annotated[
        str, typer.Argument(metavar="USER", help="URI of the user the agent works for.", show_default=False)
    ],
    project: Annotated[
        list[str] | None, typer.Option(help="URI of a project whose constraints count; repeatable.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Of the user's facts, the namespaces to show; repeatable. Default: preference; '*' is all."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Longest wait for the whole handshake, seconds.", min=0.1)
    ] = 20.0,
    as_json: AsJson = False,
    process: AsProcess = False,
) -> None:
    """Print what the node knows that the agent should: markdown for its system prompt, or nothing."""

    async def handshake() -> Any:
        from memory.stigmem.abi import StigmemAbi

        if process:
            await StigmemAbi.from_env("process").probe()
        wanted = None if "*" in (namespace or ()) else namespace or ("preference",)
        abi = StigmemAbi.from_env(boot_timeout_s=timeout)
        return await abi.boot(user_entity, project or (), namespaces=wanted)

    context = attempt(process, handshake)
    if context is None:
        return
    if as_json:
        facts = [fact.model_dump(mode="json") for fact in context.facts]
        print_json({"facts": facts, "summary": context.summary, "problems": context.problems})
    elif context.summary:
        typer.echo(context.summary)


@commands.command()
def checkout(task: Task, wait: Wait = 5.0, as_json: AsJson = False, process: AsProcess = False) -> None:
    """The agent claimed a task."""
    _write("checkout", lambda build: build.checkout(task), wait, as_json, process)


@commands.command()
def done(task: Task, wait: Wait = 5.0, as_json: AsJson = False, process: AsProcess = False) -> None:
    """The agent completed a task."""
    _write("done", lambda build: build.done(task), wait, as_json, process)


@commands.command()
def blocked(
    task: Task,
    by: Annotated[
        str | None, typer.Option(help="Id or URI of the task that blocks it.", show_default=False)
    ] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
    process: AsProcess = False,
) -> None:
    """The agent is stuck on a task."""
    _write("blocked", lambda build: build.blocked(task, by), wait, as_json, process)


@commands.command()
def handoff(
    to: To,
    summary: Annotated[
        str, typer.Option(help=f"What the next agent must know, up to 4 KB. {_OR_STDIN}", show_default=False)
    ],
    ref: Annotated[
        list[str] | None, typer.Option(help="Id or URI of a fact it needs; repeatable.", show_default=False)
    ] = None,
    continuation: Annotated[str | None, typer.Option(help="How to go on.", show_default=False)] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
    process: AsProcess = False,
) -> None:
    """The agent hands its work to another one."""

    def build(surfaces: Surfaces) -> Write:
        return surfaces.handoff(to, from_stdin(summary), ref or (), continuation)

    _write("handoff", build, wait, as_json, process)


@commands.command()
def decide(
    decision: Annotated[
        str,
        typer.Argument(metavar="DECISION", help="A slug such as use-sqlite, or a URI.", show_default=False),
    ],
    summary: Annotated[
        str, typer.Option(help=f"What was decided and why, up to 4 KB. {_OR_STDIN}", show_default=False)
    ],
    wait: Wait = 5.0,
    as_json: AsJson = False,
    process: AsProcess = False,
) -> None:
    """The agent made a significant choice."""
    _write("decision", lambda build: build.decision(decision, from_stdin(summary)), wait, as_json, process)


@commands.command()
def escalate(
    to: To,
    goal: Annotated[
        str, typer.Option(help=f"What it could not complete, up to 2 KB. {_OR_STDIN}", show_default=False)
    ],
    priority: Annotated[str, typer.Option(help="low, medium, high or critical.")] = "medium",
    wait: Wait = 5.0,
    as_json: AsJson = False,
    process: AsProcess = False,
) -> None:
    """The agent cannot go on without somebody else."""
    checked: Any = priority  # the builder refuses what is no priority
    level: Priority = checked
    _write("escalation", lambda build: build.escalation(to, from_stdin(goal), level), wait, as_json, process)


def _write(what: str, build: Callable[[Surfaces], Write], wait: float, as_json: bool, process: bool) -> None:
    """Send one write and print the URI it is stored under; nothing where it is not stored."""

    async def send() -> Ticket:
        from memory.stigmem.abi import StigmemAbi
        from memory.stigmem.queue import Ticket

        if process:
            abi = StigmemAbi.from_env("process", timeout_s=max(wait, 0.1))
            write = build(abi.surfaces)
            ticket = Ticket(what, write.entity, "written")
            ticket.facts = await abi.perform(write)
            return ticket
        abi = StigmemAbi.from_env()
        ticket = abi.fire(what, build)
        await abi.aclose(wait)
        return ticket

    ticket = attempt(process, send)
    if ticket is None:
        return
    if as_json:
        print_json(
            {
                "what": ticket.what,
                "entity": ticket.entity,
                "state": ticket.state,
                "facts": {fact.id: fact.relation for fact in ticket.facts},
                "error": str(ticket.error) if ticket.error else None,
            }
        )
    elif ticket.state == "written":
        typer.echo(ticket.entity)
