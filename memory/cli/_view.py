"""``memslot view``: a memory, its turns and the runs as pages for a browser on this machine."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from memory import InputError, MemslotError, RetrieveRequest, RetrieveResult
from memory.contract._quantity import quantity
from memory.plugins.opening import recorded_journal
from memory.runtime import Item, MemoryItems
from memory.slot.slot import MemorySlot
from memory.slot.sync import SyncMemory
from memory.storage.journal import JournalEntry

_HOSTS = ("127.0.0.1", "localhost")
_LONGEST = 100_000  # bytes of a form
_SHOWN = 200  # memories, or turns
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>memslot: {title}</title>
<style>:root{{color-scheme:light dark}}
body{{background:Canvas;color:CanvasText;font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere;
max-width:60rem;margin:1rem auto;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;vertical-align:top;padding:.3rem .5rem;
border-bottom:1px solid #8888}}th,td[data-of],button{{white-space:nowrap}}
pre{{white-space:pre-wrap;border:1px solid #8888;padding:.6rem}}
input[name=q]{{width:min(30rem,70%);font:inherit}}nav a{{margin-right:1rem}}
@media(max-width:40rem){{thead{{display:none}}tr{{display:block;padding:.4rem 0;border-bottom:1px solid #8888}}
td{{display:block;border:0;padding:0}}
td[data-of]:not(:empty)::before{{content:attr(data-of) ": ";opacity:.7}}}}</style>
<nav>{links}</nav><h1>{title}</h1>
<form action="/"><input name="q" value="{asked}" placeholder="Ask the memory" aria-label="Question">
<button>Ask</button></form>
{body}</html>"""


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
            return self._page("", _turns(self._recorded()))
        if path.startswith("turns/"):
            found = [turn for turn in self._recorded() if str(turn.kept.seq) == path.removeprefix("turns/")]
            return self._turn(found[0]) if found else None
        return None if path else self._page(asked, self._found(asked) if asked.strip() else self._content())

    def _page(self, asked: str, body: str) -> str:
        assert self.memory is not None
        slot = self.memory.slot
        places = {"/": "Memory", "/turns": "Turns", **({"/runs": "Runs"} if self.runs else {})}
        return _PAGE.format(
            title=escape(f"{slot.delivery.scope_or_default(None).label} on {slot.backend_name}"),
            links="".join(f'<a href="{place}">{name}</a>' for place, name in places.items()),
            asked=escape(asked),
            body=body,
        )

    def _content(self) -> str:
        """All memories, if the backend can list them."""
        assert self.memory is not None
        can_forget, items = self.memory.run(_everything)
        if items is None:
            return "<p>This backend does not list its memories. Ask it a question.</p>"
        rows = [
            (escape(item.content), "", "", "", self._delete_form(item.id, "") if can_forget else "")
            for item in items[:_SHOWN]
        ]
        shown = f", of which {_SHOWN} are shown" if len(items) > _SHOWN else ""
        return f"<h2>{quantity(len(items), 'memories')}{shown}</h2>{_memories(rows)}"

    def _found(self, asked: str) -> str:
        """The memory's rows for a question, and the part that a prompt gets."""
        assert self.memory is not None
        can_forget, result, shown = self.memory.run(lambda slot: _ask(slot, asked))
        used = {shown.entries[index].native_id for index in shown.included}
        rows = [
            (
                *_shown_row(entry.text, entry.timestamp, entry.score, entry.native_id in used),
                self._delete_form(entry.native_id, asked) if can_forget else "",
            )
            for entry in result.entries
        ]
        section = escape(shown.formatted_context) or "nothing: no row fits the question"
        took = f"{quantity(len(result.entries), 'memories')} in {result.trace.latency_ms or 0:.0f} ms"
        return f"<h2>The prompt gets</h2><pre>{section}</pre><h2>Recalled: {took}</h2>{_memories(rows)}"

    def _turn(self, turn: JournalEntry) -> str:
        """One recorded turn: what was asked, recalled and used then, and what was recorded."""
        assert self.memory is not None
        asked, recalled = _question_of(turn), self.memory.slot.delivery.recalls.of(turn.event)
        rows = [
            (
                *_shown_row(
                    row["text"],
                    row["time"] and datetime.fromisoformat(row["time"]),
                    row["score"],
                    row["used"],
                ),
                "",
            )
            for row in recalled or ()
        ]
        then = _memories(rows) if rows else "<p>nothing</p>"
        if recalled is None:
            then = (
                "<p>It is not known: the host kept no recall of this turn, or a memory of it was deleted.</p>"
            )
        said = "".join(
            f"<p><b>{escape(each.role)}</b> {escape(each.content)}</p>" for each in turn.event.messages
        )
        return self._page(
            asked,
            f"<h2>Asked</h2><p>{escape(asked) or 'nothing'}</p><h2>Recalled then</h2>{then}"
            f"<h2>Recorded at {turn.event.timestamp:%Y-%m-%d %H:%M}: {escape(turn.kept.state)}</h2>{said}",
        )

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

    def _delete_form(self, native_id: str | None, asked: str) -> str:
        if not native_id:
            return ""
        given = {"token": self.token, "id": native_id, "q": asked}
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in given.items()
        )
        return f'<form method="post" action="/">{hidden}<button>delete</button></form>'


def _shown_row(
    text: str, time: datetime | None, score: float | None, used: bool
) -> tuple[str, str, str, str]:
    return (
        escape(text),
        f"{time:%Y-%m-%d %H:%M}" if time else "",
        "" if score is None else f"{score:.2f}",
        "yes" if used else "no",
    )


def _memories(rows: Iterable[tuple[str, ...]]) -> str:
    heads = ("memory", "time", "score", "in the prompt", "")
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td data-of="{head}">{cell}</td>' if head in heads[1:4] else f"<td>{cell}</td>"
            for head, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead>{lines}</table>"


def _turns(turns: Iterable[JournalEntry]) -> str:
    lines = "".join(
        f'<p><a href="/turns/{turn.kept.seq}">{turn.event.timestamp:%Y-%m-%d %H:%M}</a> '
        f"{escape(turn.event.session_id)}: {escape((_question_of(turn) or '(no question)')[:200])}</p>"
        for turn in turns
    )
    return f"<h2>Turns</h2>{lines}"


def _question_of(turn: JournalEntry) -> str:
    return next((each.content for each in turn.event.messages if each.role == "user"), "")


async def _everything(slot: MemorySlot) -> tuple[bool, list[Item] | None]:
    items = MemoryItems(slot)
    return "forget" in items.offered, await items.everything()


async def _ask(slot: MemorySlot, asked: str) -> tuple[bool, RetrieveResult, RetrieveResult]:
    """Whether single rows can be deleted, the memory's answer, and the part of it that a prompt shows."""
    items = MemoryItems(slot)
    await slot.delivery.set_up(items.scope)
    request = RetrieveRequest(query=asked, scope=items.scope, session_id="view", budget=slot.delivery.budget)
    result = await slot.retrieve(request)
    return "forget" in items.offered, result, slot.for_prompt(result)


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
