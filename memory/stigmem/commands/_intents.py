"""``memslot tools stigmem intent``: send and list intent envelopes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from memory import InputError
from memory.plugins.console import AsJson, complain, print_json, print_table
from memory.stigmem.commands._shared import Wait, from_stdin, within

if TYPE_CHECKING:
    from memory.stigmem.intent_client import IntentClient
    from memory.stigmem.writers import Surfaces

T = TypeVar("T")

app = typer.Typer(help="Intent envelopes: send them, and see which are in flight.", rich_markup_mode=None)


@app.command()
def create(
    goal: Annotated[
        str | None, typer.Option(help="What is wanted, up to 2 KB. '-' reads it from stdin.")
    ] = None,
    to: Annotated[list[str] | None, typer.Option(help="URI of a recipient; repeatable.")] = None,
    escalate_to: Annotated[
        str | None, typer.Option(help="URI of whom a recipient that cannot do it turns to.")
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help="Of an escalation: low, medium, high or critical.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole envelope as JSON; the options beside it come first.")
    ] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """Send an envelope and print the id under which the node holds it."""

    sent = ""

    async def send(intents: IntentClient, surfaces: Surfaces) -> Any:
        from memory.stigmem.intents import IntentEnvelope

        nonlocal sent
        body: dict[str, Any] = {"from": surfaces.as_ref(surfaces.source), **(_read(file) if file else {})}
        if goal is not None:
            body["goal"] = from_stdin(goal)
        if to:
            body["to"] = [surfaces.as_ref(uri) for uri in to]
        policy = {"escalate_to": escalate_to and surfaces.as_ref(escalate_to), "priority": priority}
        if given := {name: value for name, value in policy.items() if value is not None}:
            stated = body.get("escalation")
            body["escalation"] = {**(stated if isinstance(stated, dict) else {}), **given}
        envelope = IntentEnvelope(**body)
        sent = f"; the envelope {envelope.id} may exist, and 'intent show' tells"
        return await intents.submit(envelope)

    receipt = _on_node(wait, send, lambda: sent)
    if as_json:
        print_json(asdict(receipt))
    else:
        typer.echo(receipt.entity)


@app.command("list")
def list_intents(
    to: Annotated[str | None, typer.Option(help="Only those addressed to this URI.")] = None,
    sender: Annotated[str | None, typer.Option("--from", help="Only those from this URI.")] = None,
    goal: Annotated[str | None, typer.Option(help="Only those with exactly this goal.")] = None,
    wait: Wait = 5.0,
    as_json: AsJson = False,
) -> None:
    """List the envelopes in flight, newest first."""

    async def look(intents: IntentClient, _: Surfaces) -> Any:
        return await intents.in_flight(goal=goal, to=to, sender=sender)

    found = _on_node(wait, look)
    if as_json:
        envelopes = {entity: envelope.body() for entity, envelope in found.envelopes.items()}
        print_json({**vars(found), "envelopes": envelopes})
        return
    rows = [
        (entity, envelope.from_, ", ".join(envelope.to), str(envelope.expires_at or "-"), envelope.goal)
        for entity, envelope in found.envelopes.items()
    ]
    if rows:
        print_table(("id", "from", "to", "expires", "goal"), rows)
    for entity, problem in found.unreadable.items():
        complain(f"warning: {entity} cannot be read: {problem}", warning=True)
    if found.truncated:
        complain("warning: the node may hold more envelopes than it shows at once", warning=True)


@app.command()
def show(
    intent: Annotated[str, typer.Argument(metavar="ID", help="As 'create' printed it.")], wait: Wait = 5.0
) -> None:
    """Show one envelope as JSON."""

    async def look(intents: IntentClient, _: Surfaces) -> Any:
        found = await intents.get(intent)
        if found is None:
            raise InputError(
                "ID: no envelope of this id is in flight; 'memslot tools stigmem intent list' shows all"
            )
        return found

    envelope = _on_node(wait, look)
    print_json(envelope.body())
    for violation in envelope.violations:
        complain(f"warning: {violation}", warning=True)


def _on_node(
    wait: float, call: Callable[[IntentClient, Surfaces], Awaitable[T]], hint: Callable[[], str] = str
) -> T:
    async def run() -> T:
        from memory.stigmem.abi import StigmemAbi
        from memory.stigmem.intent_client import IntentClient

        abi = StigmemAbi.from_env("process")
        async with abi.open_node() as node:
            return await call(IntentClient(node), abi.surfaces)

    return within(wait, run, hint)


def _read(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--file: {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InputError(
            f"--file: {path}: is not a JSON object; write the envelope's fields as in 'intent show'"
        )
    return body
