"""The commands for an agent's lifecycle: its reads at the start, and its writes during its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from memory.plugins.console import AsJson, print_json
from memory.stigmem.commands import strict
from memory.stigmem.commands._shared import Wait, check_wait, from_stdin, go_on_waiting, within

if TYPE_CHECKING:
    from memory.stigmem.facts import Fact
    from memory.stigmem.intents import Priority
    from memory.stigmem.writers import Surfaces, Write

app = typer.Typer(add_completion=False, rich_markup_mode=None)


Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's id or URI.")]
To = Annotated[str, typer.Option(help="URI of the agent or user, e.g. stigmem://node/agent/b.")]
_OR_STDIN = "'-' reads it from stdin."


@app.command()
def boot(
    user_entity: Annotated[str, typer.Argument(metavar="USER", help="URI of the user the agent works for.")],
    project: Annotated[
        list[str] | None, typer.Option(help="URI of a project whose constraints count; repeatable.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Of the user's facts, the namespaces to show; repeatable. Default: preference; '*' is all."
        ),
    ] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """Print what the agent should know. It is markdown for the system prompt, or nothing."""

    async def handshake() -> Any:
        from memory import BackendError
        from memory.stigmem.abi import StigmemAbi

        StigmemAbi.from_env("process")  # refuses wrong settings
        wanted = None if "*" in (namespace or ()) else namespace or ("preference",)
        abi = StigmemAbi.from_env(boot_timeout_s=wait)
        context = await abi.boot(user_entity, project or (), namespaces=wanted)
        if strict.get() and context.problems:
            raise BackendError(f"stigmem: {'; '.join(context.problems)}")
        return context

    context = within(wait, handshake, grace_s=1.0)
    if as_json:
        facts = [fact.model_dump(mode="json") for fact in context.facts]
        print_json({"facts": facts, "summary": context.summary, "problems": context.problems})
    elif context.summary:
        typer.echo(context.summary)


def _on_task(name: str, surface: str, explained: str) -> None:
    def command(task: Task, wait: Wait = 5.0, as_json: AsJson = False) -> None:
        _write(lambda build: getattr(build, surface)(task), wait, as_json)

    app.command(name, help=explained)(command)


_on_task("checkout", "checkout", "The agent claimed a task.")
_on_task("done", "done", "The agent completed a task.")
_PING = "The agent works on a task. Not sent while an earlier ping is valid, which is five minutes."
_on_task("ping", "activity", _PING)


@app.command()
def blocked(
    task: Task,
    by: Annotated[str | None, typer.Option(help="Id or URI of the task that blocks it.")] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """The agent is stuck on a task."""
    _write(lambda build: build.blocked(task, by), wait, as_json)


@app.command()
def handoff(
    to: To,
    summary: Annotated[str, typer.Option(help=f"What the next agent must know, up to 4 KB. {_OR_STDIN}")],
    ref: Annotated[list[str] | None, typer.Option(help="Id or URI of a fact it needs; repeatable.")] = None,
    continuation: Annotated[str | None, typer.Option(help="How to go on.")] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """The agent hands its work to another one."""
    _write(lambda build: build.handoff(to, from_stdin(summary), ref or (), continuation), wait, as_json)


@app.command()
def decide(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="A slug such as use-sqlite, or a URI.")],
    summary: Annotated[str, typer.Option(help=f"What was decided and why, up to 4 KB. {_OR_STDIN}")],
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """The agent made a significant choice."""
    _write(lambda build: build.decision(decision, from_stdin(summary)), wait, as_json)


@app.command()
def escalate(
    to: To,
    goal: Annotated[str, typer.Option(help=f"What it could not complete, up to 2 KB. {_OR_STDIN}")],
    priority: Annotated[str, typer.Option(help="low, medium, high or critical.")] = "medium",
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """The agent cannot go on without somebody else."""
    level = cast("Priority", priority)  # the builder refuses other words
    _write(lambda build: build.escalation(to, from_stdin(goal), level), wait, as_json)


@dataclass(frozen=True)
class WriteCommand:
    """A write from a command line. ``wait`` is its time limit in seconds."""

    build: Callable[[Surfaces], Write]
    wait: float
    as_json: bool


# The sender sets this list to collect the writes of hooks. Without it, a write is sent at once.
handed_over: ContextVar[list[WriteCommand] | None] = ContextVar("handed_over", default=None)


def _write(build: Callable[[Surfaces], Write], wait: float, as_json: bool) -> None:
    check_wait(wait)
    if (collected := handed_over.get()) is not None:
        collected.append(WriteCommand(build, wait, as_json))
        return

    async def send() -> tuple[Write, tuple[Fact, ...]]:
        from memory.stigmem.abi import StigmemAbi

        abi = StigmemAbi.from_env("process")
        write = build(abi.surfaces)
        return write, await abi.perform(write, go_on_waiting)

    write, facts = within(wait, send)
    typer.echo(result_line(write, facts, as_json=as_json), nl=False)


def result_line(write: Write, facts: Sequence[Fact], *, as_json: bool) -> str:
    if not as_json:
        return f"{write.entity}\n"
    relations = {fact.id: fact.relation for fact in facts}
    result = {"what": write.what, "entity": write.entity, "facts": relations}
    return f"{json.dumps(result, indent=2, ensure_ascii=False)}\n"
