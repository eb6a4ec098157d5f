"""``memslot view``: a memory, its turns and the runs as pages for a browser on this machine."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jinja2 import Environment, FileSystemLoader, Template

from memory import InputError, MemslotError, RetrieveRequest
from memory.contract._quantity import quantity
from memory.plugins.opening import recorded_journal
from memory.runtime import Item, MemoryItems
from memory.slot.slot import MemorySlot
from memory.slot.sync import SyncMemory
from memory.storage.journal import JournalEntry

_HOSTS = ("127.0.0.1", "localhost")
_LONGEST = 100_000  # bytes of a form
_SHOWN = 200  # memories, or turns


class ViewServer(ThreadingHTTPServer):
    """Serves one person's memory, the runs of a directory, or both.

    Args:
        memory: the open memory; its slot has a scope.
        config: the memory's file, whose journal holds the turns.
        runs: the directory of results.
        port: port of 127.0.0.1; 0 takes a free one.
    """

    daemon_threads = True

    def __init__(
        self,
        memory: SyncMemory | None = None,
        *,
        config: Path | None = None,
        runs: Path | None = None,
        port: int = 0,
    ) -> None:
        self.memory, self.config, self.runs = memory, config, runs
        self.token = secrets.token_urlsafe()  # pages of other sites do not know it, and so cannot delete
        super().__init__((_HOSTS[0], port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{_HOSTS[0]}:{self.server_address[1]}/"

    def page(self, path: str, asked: str) -> str | None:
        """The page at a path, for the question ``asked``. None if there is no such page.

        Raises:
            MemslotError: the memory failed.
        """
        if self.runs is not None and (self.memory is None or path.partition("/")[0] == "runs"):
            from memory.bench.report.view import listing, page_of

            wanted = path.removeprefix("runs").strip("/")
            return page_of(self.runs, wanted) if wanted else listing(self.runs)
        if self.memory is None:
            return None
        if path == "turns":
            shown: dict[str, Any] | None = {"turns": self._recorded()}
        elif path.startswith("turns/"):
            shown = self._turn(path.removeprefix("turns/"))
        elif path:
            shown = None
        else:
            shown = self.memory.run(lambda slot: _answer(slot, asked) if asked.strip() else _content(slot))
        if shown is None:
            return None
        slot = self.memory.slot
        title = f"{slot.delivery.scope_or_default(None).label} on {slot.backend_name}"
        given = {"title": title, "asked": asked, "token": self.token, "runs": self.runs}
        return _template().render(given | shown, question_of=_question_of)

    def _turn(self, number: str) -> dict[str, Any] | None:
        """One recorded turn: what was asked, recalled and used then, and what was recorded."""
        turn = next((turn for turn in self._recorded() if str(turn.kept.seq) == number), None)
        if turn is None or self.memory is None:
            return None
        recalled = self.memory.slot.delivery.recalls.of(turn.event)
        rows = [
            (
                Item(None, row["text"], row["score"], row["time"] and datetime.fromisoformat(row["time"])),
                row["used"],
            )
            for row in recalled or ()
        ]
        return {"turn": turn, "asked": _question_of(turn), "rows": None if recalled is None else rows}

    def _recorded(self) -> Iterable[JournalEntry]:
        """The last turns of this person, newest first.

        Raises:
            ConfigError: there is no journal, or it is empty.
            InputError: the memory has no file.
        """
        if self.memory is None or self.config is None:
            raise InputError("the memory has no file whose journal could hold its turns")
        scope = self.memory.slot.delivery.scope_or_default(None)
        with recorded_journal(self.config) as journal:
            return reversed(deque(journal.entries(scope), maxlen=_SHOWN))


@cache
def _template() -> Template:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(loader=loader, autoescape=True).get_template("view.html.j2")


def _question_of(turn: JournalEntry) -> str:
    return next((each.content for each in turn.event.messages if each.role == "user"), "")


async def _content(slot: MemorySlot) -> dict[str, Any]:
    """All memories, if the backend can list them."""
    items = MemoryItems(slot)
    found = await items.everything()
    return {
        "can_forget": "forget" in items.offered,
        "rows": found if found is None else [(item, None) for item in found[:_SHOWN]],
        "count": quantity(len(found or ()), "memories"),
        "more": len(found or ()) > _SHOWN,
    }


async def _answer(slot: MemorySlot, asked: str) -> dict[str, Any]:
    """The memory's rows for a question, and the part that a prompt gets."""
    items = MemoryItems(slot)
    await slot.delivery.set_up(items.scope)
    request = RetrieveRequest(query=asked, scope=items.scope, session_id="view", budget=slot.delivery.budget)
    result = await slot.retrieve(request)
    prompt = slot.for_prompt(result)
    used = {prompt.entries[index].native_id for index in prompt.included}
    return {
        "can_forget": "forget" in items.offered,
        "rows": [(Item.of(entry), entry.native_id in used) for entry in result.entries],
        "section": prompt.formatted_context,
        "count": quantity(len(result.entries), "memories"),
        "latency_ms": result.trace.latency_ms or 0,
    }


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version = "memslot"

    def do_GET(self) -> None:
        """Answer with a page."""
        address = urlsplit(self.path)
        # A foreign site whose host name resolves to this machine (DNS rebinding) must not read memories.
        if (self.headers.get("Host") or "").rpartition(":")[0] not in _HOSTS:
            self._answer(HTTPStatus.FORBIDDEN, "This page is for a browser of this machine.")
            return
        try:
            page = self.server.page(
                unquote(address.path).strip("/"), parse_qs(address.query).get("q", [""])[0]
            )
        except (MemslotError, OSError) as error:
            self._answer(HTTPStatus.BAD_GATEWAY, escape(str(error)))
            return
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            self._answer(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        """Delete the row ``id``."""
        length = self.headers.get("Content-Length") or ""
        size = int(length) if length.isdecimal() else 0
        form = parse_qs(self.rfile.read(size).decode("utf-8", "replace")) if size <= _LONGEST else {}
        token, native_id, asked = (form.get(name, [""])[0] for name in ("token", "id", "q"))
        memory = self.server.memory
        if memory is None or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, "Load the page again, and delete from there.")
            return
        try:
            memory.run(lambda slot: MemoryItems(slot).forget(native_id))
        except MemslotError as error:
            self._answer(HTTPStatus.BAD_GATEWAY, escape(str(error)))
            return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", f"/?q={quote(asked)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing, because a path holds the user's question."""
