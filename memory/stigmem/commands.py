"""``memslot tools stigmem``: the Stigmem adapter ABI (Spec-19) for agents with shell hooks.

Hooks run after every step of an agent, so the client is imported only if there is a node.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from memory.stigmem.abi import StigmemAbi
    from memory.stigmem.intents import Priority
    from memory.stigmem.writers import Surfaces, Write

T = TypeVar("T")
_strict: ContextVar[bool] = ContextVar("_strict", default=True)  # whether the running command may fail


class HookGroup(TyperGroup):
    """Commands for agents' hooks. An error is one line on stderr, with exit code 0.

    With ``--process``, errors are those of other commands.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        _strict.set("--process" in args)
        given = [argument for argument in args if argument != "--process"] or ["--help"]
        if not (_strict.get() or "--help" in given or os.environ.get("STIGMEM_URL", "").strip()):
            raise typer.Exit(0)
        with _harmless():
            return super().make_context(info_name, given, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _harmless():
            return super().invoke(ctx)


@contextmanager
def _harmless() -> Iterator[None]:
    """Turn an error of a hook into a warning, because it must not fail the agent (12.6)."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if _strict.get():
            raise
        from memory import MemslotError
        from memory.plugins.console import complain, usage_line

        known = str(error) if isinstance(error, MemslotError) else f"unexpected {type(error).__name__}"
        complain(f"warning: {usage_line(error, 'memslot tools stigmem') or known}", warning=True)
        raise typer.Exit(0) from None


commands = typer.Typer(
    cls=HookGroup,
    add_completion=False,
    rich_markup_mode=None,
    help="Tell a Stigmem node what an agent does, and the reverse. For hooks: does nothing "
    "without STIGMEM_URL, and exits with 0 whatever happens. With --process, which may stand anywhere, it exits "
    "with 2 without a URL or on bad input, and with 1 where the node fails. Reads STIGMEM_URL, STIGMEM_API_KEY and "
    "STIGMEM_SOURCE_ENTITY.",
)
Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's id or URI.")]
To = Annotated[str, typer.Option(help="URI of the agent or user, e.g. stigmem://node/agent/b.")]
_WAIT_S = 20.0  # for the node


@commands.command()
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
) -> None:
    """Print what the agent should know. It is markdown for the system prompt, or nothing."""
    wanted = None if "*" in (namespace or ()) else namespace or ("preference",)

    async def handshake(process: StigmemAbi) -> str:
        # A process pulls no context (12.3.2), so the pulls are those of middleware.
        abi = type(process).from_env()
        context = await abi.boot(user_entity, project or (), namespaces=wanted)
        if _strict.get() and context.problems:
            from memory import BackendError

            raise BackendError(f"stigmem: {'; '.join(context.problems)}")
        return context.summary

    if summary := _run(handshake):
        typer.echo(summary)


@commands.command()
def checkout(task: Task) -> None:
    """The agent claimed a task."""
    _write(lambda build: build.checkout(task))


@commands.command()
def done(task: Task) -> None:
    """The agent completed a task."""
    _write(lambda build: build.done(task))


@commands.command()
def ping(task: Task) -> None:
    """The agent works on a task. Not sent while an earlier ping is valid, which is five minutes."""
    _write(lambda build: build.activity(task))


@commands.command()
def blocked(
    task: Task,
    by: Annotated[str | None, typer.Option(help="Id or URI of the task that blocks it.")] = None,
) -> None:
    """The agent is stuck on a task."""
    _write(lambda build: build.blocked(task, by))


@commands.command()
def handoff(
    to: To,
    summary: Annotated[str, typer.Option(help="What the next agent must know, up to 4 KB.")],
    ref: Annotated[list[str] | None, typer.Option(help="Id or URI of a fact it needs; repeatable.")] = None,
    continuation: Annotated[str | None, typer.Option(help="How to go on.")] = None,
) -> None:
    """The agent hands its work to another one."""
    _write(lambda build: build.handoff(to, summary, ref or (), continuation))


@commands.command()
def decide(
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="A slug such as use-sqlite, or a URI.")],
    summary: Annotated[str, typer.Option(help="What was decided and why, up to 4 KB.")],
) -> None:
    """The agent made a significant choice."""
    _write(lambda build: build.decision(decision, summary))


@commands.command()
def escalate(
    to: To,
    goal: Annotated[str, typer.Option(help="What it could not complete, up to 2 KB.")],
    priority: Annotated[str, typer.Option(help="low, medium, high or critical.")] = "medium",
) -> None:
    """The agent cannot go on without somebody else."""
    level = cast("Priority", priority)  # the builder refuses other words
    _write(lambda build: build.escalation(to, goal, level))


def _write(build: Callable[[Surfaces], Write]) -> None:
    """Send a write and print its entity."""

    async def send(abi: StigmemAbi) -> str:
        write = build(abi.surfaces)
        await abi.perform(write)
        return write.entity

    typer.echo(_run(send))


def _run(call: Callable[[StigmemAbi], Awaitable[T]]) -> T:
    """Run ``call`` with the node that the environment names.

    Raises:
        ConfigError: a setting is missing or wrong, or the HTTP client is not installed.
        BackendTimeout: the call takes longer than 20 seconds.
    """
    import anyio

    from memory import BackendTimeout, ConfigError

    try:
        from memory.stigmem.abi import StigmemAbi
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed; run: pip install 'memslot[stigmem]'") from error

    async def limited() -> T:
        with anyio.fail_after(_WAIT_S):
            return await call(StigmemAbi.from_env("process"))

    try:
        return anyio.run(limited)
    except TimeoutError:
        late = f"stigmem: not finished within {_WAIT_S:g} s"
        raise BackendTimeout(late, backend_name="stigmem") from None
