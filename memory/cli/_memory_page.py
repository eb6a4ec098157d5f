"""A memory as one page, served to a browser of this machine: ask it, see what a prompt shows, delete a row."""

from __future__ import annotations

import secrets
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

from memory import MemslotError, RetrieveRequest, RetrieveResult
from memory.runtime import MemoryItems

if TYPE_CHECKING:
    from memory.slot.slot import MemorySlot
    from memory.slot.sync import SyncMemory

_HOSTS = ("127.0.0.1", "localhost")
_LONGEST = 100_000  # bytes of a form
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>memslot: {title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:1rem auto;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;vertical-align:top;padding:.3rem .5rem;
border-bottom:1px solid #ccc;overflow-wrap:anywhere}}pre{{white-space:pre-wrap;background:#eef1fb;padding:.6rem}}
input[name=q]{{width:min(30rem,70%)}}</style>
<h1>{title}</h1>
<form><input name="q" value="{asked}" placeholder="Ask the memory" autofocus> <button>Ask</button></form>
{body}</html>"""


class MemoryServer(ThreadingHTTPServer):
    """Serves one person's memory.

    Args:
        memory: the open memory; its slot has a scope.
        port: of the loopback; 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, memory: SyncMemory, port: int = 0) -> None:
        self.memory = memory
        self.token = secrets.token_urlsafe()  # a page of elsewhere cannot know it, so it deletes nothing
        super().__init__((_HOSTS[0], port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{_HOSTS[0]}:{self.server_address[1]}/"

    def page(self, asked: str) -> str:
        slot = self.memory.slot
        title = f"{slot.delivery.scope_or_default(None).label} on {slot.backend_name}"
        body = (
            self._answer_to(asked)
            if asked.strip()
            else "<p>It shows what the memory finds for a question.</p>"
        )
        return _PAGE.format(title=escape(title), asked=escape(asked), body=body)

    def _answer_to(self, asked: str) -> str:
        result, shown, can_forget = self.memory.run(lambda slot: _ask(slot, asked))
        ids = {shown.entries[index].native_id for index in shown.included}
        rows = ""
        for entry in result.entries:
            cells = (
                escape(entry.text),
                f"{entry.timestamp:%Y-%m-%d %H:%M}" if entry.timestamp else "",
                "" if entry.score is None else f"{entry.score:.2f}",
                "yes" if entry.native_id in ids else "no",
                self._delete_form(entry.native_id, asked) if can_forget and entry.native_id else "",
            )
            rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        heads = "".join(f"<th>{name}</th>" for name in ("memory", "time", "score", "in the prompt", ""))
        section = escape(shown.formatted_context) or "nothing: no row fits the question"
        took = f"{len(result.entries)} rows in {result.trace.latency_ms or 0:.0f} ms"
        return f"<h2>The prompt gets</h2><pre>{section}</pre><h2>{took}</h2><table><tr>{heads}</tr>{rows}</table>"

    def _delete_form(self, native_id: str, asked: str) -> str:
        given = {"token": self.token, "id": native_id, "q": asked}
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in given.items()
        )
        return f'<form method="post">{hidden}<button>delete</button></form>'


async def _ask(slot: MemorySlot, asked: str) -> tuple[RetrieveResult, RetrieveResult, bool]:
    """The answer of the memory, the part that a prompt shows, and whether single rows can be deleted."""
    items = MemoryItems(slot)
    async with slot.delivery.leases.lease(items.scope):
        request = RetrieveRequest(
            query=asked, scope=items.scope, session_id="view", budget=slot.delivery.budget
        )
        result = await slot.retrieve(request)
    return result, slot.for_prompt(result), "forget" in items.offered


class _Handler(BaseHTTPRequestHandler):
    server: MemoryServer
    server_version = "memslot"

    def do_GET(self) -> None:
        """The page for the question in ``q``."""
        asked = parse_qs(urlsplit(self.path).query).get("q", [""])[0]
        # A page of elsewhere whose name was made to lead here must not read what is remembered.
        if (self.headers.get("Host") or "").rpartition(":")[0] not in _HOSTS:
            self._answer(HTTPStatus.FORBIDDEN, "This page is for a browser of this machine.")
            return
        try:
            self._answer(HTTPStatus.OK, self.server.page(asked))
        except MemslotError as error:
            self._answer(HTTPStatus.BAD_GATEWAY, escape(str(error)))

    def do_POST(self) -> None:
        """Delete the row ``id``."""
        length = self.headers.get("Content-Length") or ""
        size = int(length) if length.isdecimal() else 0
        form = parse_qs(self.rfile.read(size).decode("utf-8", "replace")) if size <= _LONGEST else {}
        token, native_id, asked = (form.get(name, [""])[0] for name in ("token", "id", "q"))
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, "Load the page again, and delete from there.")
            return
        try:
            self.server.memory.run(lambda slot: MemoryItems(slot).forget(native_id))
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
        """Say nothing: a path holds what was asked."""
