"""What a Honcho server holds and does with it, as measured on a real one: its state, its worker, its filters.

Derivation, deletion and even entering the queue happen later than the answer that promises them, so time passes
here with every look: :meth:`HonchoModel.advance`.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from honcho_filters import Refused, without_nul
from scripted_rules_honcho import concluded

from memory.adapter._scripted_text import content_words, lexical_overlap

SUMMARY_EVERY = 20
GHOST_S = 300.0


@dataclass
class SessionRow:
    """A session; ``nano`` is the id that only the queue shows."""

    id: str
    nano: str
    created_at: str
    metadata: dict[str, Any] = field(default_factory=dict)
    is_active: bool = True
    messages: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    observe_me: dict[str, bool] = field(default_factory=dict)


@dataclass
class QueueRow:
    """Work for the worker; ``state`` is pending, running or done. No route shows ``error``."""

    session: SessionRow
    message: dict[str, Any]
    observed: str | None
    due: float
    state: str = "pending"
    error: str | None = None


@dataclass
class Conclusion:
    """``said_at`` is the time prose shows; ``created_at`` the server's clock. ``message_ids`` are the inner numbers
    of the messages it was drawn from: filters see them under ``metadata``, answers do not show them."""

    id: str
    content: str
    peer_id: str
    session_id: str | None
    created_at: str
    said_at: str
    message_ids: tuple[int, ...] = ()

    def row(self):
        return {
            "id": self.id,
            "content": self.content,
            "observer_id": self.peer_id,
            "observed_id": self.peer_id,
            "session_id": self.session_id,
            "level": "explicit",
            "created_at": self.created_at,
        }


@dataclass
class Workspace:
    """One workspace and its queue."""

    id: str
    created_at: str
    metadata: dict[str, Any] = field(default_factory=dict)
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    conclusions: list[Conclusion] = field(default_factory=list)
    cards: dict[str, list[str]] = field(default_factory=dict)
    queue: list[QueueRow] = field(default_factory=list)
    ghosts: dict[str, float] = field(default_factory=dict)


class HonchoModel:
    """The server.

    Args:
        enqueue_s: between the answer to a write and its rows in the queue: the false idle.
        derive_s: between a row and what is derived from it.
        delete_s: between the answer to a deletion and the deletion.
        batch_tokens: rows of a session and peer are held until they have so many tokens; stock is 512.
        summarise_s: how long a summary takes once the rows of its session are done.

    Attributes:
        dying: the API ends after each answer to a write, before the rows of its messages enter the queue.
        only_for: the one workspace that the key is for; None: all.
        failing: the models behind it are down: rows end with an error, nothing is derived, and searches fail.
        mute: the model answers with nothing: rows are done, and nothing is derived.
        numbers: the inner number of each message, by its id; no answer shows them.
    """

    def __init__(self, enqueue_s=0.01, derive_s=0.02, delete_s=0.03, batch_tokens=0, summarise_s=0.02):
        self.enqueue_s, self.derive_s, self.delete_s = enqueue_s, derive_s, delete_s
        self.batch_tokens, self.summarise_s = batch_tokens, summarise_s
        self.failing = self.mute = self.dying = False
        self.numbers: dict[str, int] = {}
        self.only_for: str | None = None
        self.workspaces: dict[str, Workspace] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._ids = itertools.count(1)

    def new_id(self, kind):
        """Like a nanoid: 21 characters."""
        return f"{kind}_{next(self._ids):_>{20 - len(kind)}}".replace("__", "Z-")

    def workspace(self, workspace_id):
        """The workspace, made if need be."""
        if workspace_id not in self.workspaces:
            self.workspaces[workspace_id] = Workspace(workspace_id, now())
        return self.workspaces[workspace_id]

    def looked_at(self, workspace_id):
        """The workspace, or an empty one that is not kept: what reads see of an unknown one."""
        return self.workspaces.get(workspace_id) or Workspace(workspace_id, now())

    def peer(self, workspace, peer_id):
        """The peer, made if need be."""
        made = {"id": peer_id, "workspace_id": workspace.id, "created_at": now()}
        return workspace.peers.setdefault(peer_id, {**made, "metadata": {}, "configuration": {}})

    def session(self, workspace, session_id):
        """The session, made if need be; one that is being deleted, or haunts the cache, is not found."""
        if workspace.ghosts.get(session_id, 0.0) > time.monotonic():
            raise Refused(404, f"Session {session_id} not found in workspace {workspace.id}")
        if session_id not in workspace.sessions:
            workspace.sessions[session_id] = SessionRow(session_id, self.new_id("nano"), now())
        self.touch(workspace, session_id)
        session = workspace.sessions[session_id]
        if not session.is_active:
            raise Refused(404, f"Session {session_id} not found in workspace {workspace.id}")
        return session

    def touch(self, workspace, session_id):
        """Fetch a session by the cache: one that is being deleted stays there, as deleted."""
        session = workspace.sessions.get(session_id)
        if session is not None and not session.is_active:
            workspace.ghosts[session_id] = time.monotonic() + GHOST_S

    def add(self, workspace, session, said):
        """Store messages; their rows enter the queue later."""
        stored = []
        for given in said:
            self.peer(workspace, given["peer_id"])
            content = given["content"].replace("\x00", "")
            stored.append(
                {
                    "id": self.new_id("msg"),
                    "content": content,
                    "peer_id": given["peer_id"],
                    "session_id": session.id,
                    "metadata": without_nul(given.get("metadata") or {}),
                    "created_at": given.get("created_at") or now(),
                    "workspace_id": workspace.id,
                    "token_count": tokens(content),
                }
            )
        for message in stored:
            self.numbers[message["id"]] = len(self.numbers) + 1
        first = len(session.messages) + 1
        session.messages.extend(stored)
        if not self.dying:
            self.later(self.enqueue_s, lambda: self._enqueue(workspace, session, stored, first))
        return stored

    def delete_session(self, workspace, session):
        """Mark it; the worker does the rest."""
        session.is_active = False

        def gone():
            if any(row.session is session and row.state == "running" for row in workspace.queue):
                return  # as seen: what another worker derives meanwhile makes it fail, and nobody tries again
            if workspace.sessions.get(session.id) is session:
                del workspace.sessions[session.id]
            workspace.conclusions = [
                conclusion for conclusion in workspace.conclusions if conclusion.session_id != session.id
            ]
            workspace.queue = [row for row in workspace.queue if row.session is not session]

        self.later(self.delete_s, gone)

    def later(self, seconds, what):
        """Do something in a while."""
        self._later.append((time.monotonic() + seconds, what))

    def hasten(self, seconds):
        """Do what is to come in that while at the latest."""
        latest = time.monotonic() + seconds
        self._later = [(min(due, latest), what) for due, what in self._later]

    def advance(self, *, to_the_end=False):
        """Do what is due by now, or all there is to do."""
        moment = float("inf") if to_the_end else time.monotonic()
        while due := sorted((job for job in self._later if job[0] <= moment), key=lambda job: job[0]):
            self._later.remove(due[0])
            due[0][1]()
        for workspace in self.workspaces.values():
            self._work(workspace, moment)

    def purge(self):
        """What the server does every twelve hours: forget rows that are done."""
        for workspace in self.workspaces.values():
            workspace.queue = [row for row in workspace.queue if row.state != "done"]

    def _enqueue(self, workspace, session, stored, first):
        due = time.monotonic() + self.derive_s
        for number, message in enumerate(stored, first):
            if number % SUMMARY_EVERY == 0:
                workspace.queue.append(QueueRow(session, message, None, due))
            peer_id = message["peer_id"]
            observed = workspace.peers[peer_id]["configuration"].get("observe_me", True)
            if session.observe_me.get(peer_id, observed):
                workspace.queue.append(QueueRow(session, message, peer_id, due))

    def _work(self, workspace, moment):
        for summaries in (False, True):  # as seen: a session's summary comes after what is derived of it
            held = self._awaits if summaries else self._held
            kind = [row for row in workspace.queue if (row.observed is None) == summaries]
            for row in [row for row in kind if row.state == "pending" and not held(workspace, row)]:
                row.state = "running"
                row.due = time.monotonic() + self.summarise_s if summaries else row.due
            due = [row for row in kind if row.state == "running" and row.due <= moment]
            for unit in {(row.session.nano, row.observed): None for row in due}:
                self._process(workspace, [row for row in due if (row.session.nano, row.observed) == unit])

    def _process(self, workspace, rows):
        """A work unit: as seen, one call of the model for all its rows, and an error ends them one by one."""
        for row in rows:
            row.state, row.error = "done", "LLMError: 500" if self.failing else None
        if self.failing or self.mute:
            return
        if rows[0].observed is None:
            self._summarise(rows[-1].session, rows[-1].message)
        else:
            self._derive(workspace, rows)

    def _awaits(self, workspace, row):
        return any(
            other.session is row.session and other.observed is not None and other.state == "running"
            for other in workspace.queue
        )

    def _held(self, workspace, row):
        if row.observed is None or not self.batch_tokens:
            return False
        batch = [
            other
            for other in workspace.queue
            if other.state == "pending" and (other.session, other.observed) == (row.session, row.observed)
        ]
        return sum(other.message["token_count"] for other in batch) < self.batch_tokens

    def _derive(self, workspace, rows):
        """From the first row's message to the last one's; the message before it goes along if another peer said it.

        As seen, the conclusions of a call name all messages of the observed peer that went along.
        """
        session, observed = rows[0].session, rows[0].observed
        first, last = (session.messages.index(row.message) for row in (rows[0], rows[-1]))
        assert observed is not None
        window = [message for message in session.messages[first : last + 1] if message["peer_id"] == observed]
        names = tuple(self.numbers[message["id"]] for message in window)
        derived_at, said_at = now(), rows[-1].message["created_at"]
        own = {
            conclusion.content for conclusion in workspace.conclusions if conclusion.session_id == session.id
        }
        for message in window:
            for content in concluded(observed, message["content"]):
                if content in own:  # as seen, a session's conclusions are told apart from those of others
                    continue
                own.add(content)
                made = (self.new_id("doc"), content, observed, session.id, derived_at, said_at, names)
                workspace.conclusions.append(Conclusion(*made))

    def _summarise(self, session, upto):
        covered = session.messages[: session.messages.index(upto) + 1]
        content = f"SUMMARY of {len(covered)} messages, from {covered[0]['content'][:40]!r}"
        session.summary = {
            "content": content,
            "message_id": upto["id"],
            "summary_type": "short",
            "created_at": now(),
            "token_count": tokens(content),
        }

    def representation(
        self, workspace: Workspace, peer_id: str, query: str | None, top_k: int | None, max_conclusions: int | None,
        session_id: str | None = None,
    ) -> str:  # fmt: skip
        """Prose, whatever its length: no token budget trims it."""
        about = [
            conclusion for conclusion in reversed(workspace.conclusions) if conclusion.peer_id == peer_id
        ]
        if session_id is not None:
            about = [conclusion for conclusion in about if conclusion.session_id == session_id]
        chosen = ranked(query, about, lambda conclusion: conclusion.content)[: top_k or 100] if query else []
        chosen += [conclusion for conclusion in about if conclusion not in chosen]
        lines = [
            f"[{moment(conclusion.said_at)}] {conclusion.content}"
            for conclusion in chosen[: max_conclusions or 100]
        ]
        return "\n".join(("## Explicit Observations\n", *lines, "")) if lines else ""

    def context(self, session, budget, *, summary):
        """The newest messages that fit, in their order, and the summary of those before."""
        if session is None or budget <= 0:
            return [], None
        summary_row = session.summary if summary else None
        if summary_row is not None and summary_row["token_count"] > budget * 0.4:
            summary_row = None
        messages = session.messages
        if summary_row is not None:
            budget -= summary_row["token_count"]
            ids = [message["id"] for message in messages]
            messages = messages[ids.index(summary_row["message_id"]) + 1 :]
        fitting = []
        for message in reversed(messages):
            budget -= message["token_count"]
            if budget < 0:
                break
            fitting.insert(0, message)
        return fitting, summary_row


def ranked(query, rows, text):
    """Nearest first. Like vectors, it leaves none out; letters shared stand for nearness where no word is."""
    letters = set("".join(content_words(query)))

    def nearness(row):
        return (lexical_overlap(query, text(row)), len(letters & set(text(row).casefold())))

    return sorted(rows, key=nearness, reverse=True)


def now():
    """By the server's clock."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def moment(stored):
    """As prose shows it: without fractions and zone."""
    return datetime.fromisoformat(stored).strftime("%Y-%m-%d %H:%M:%S")


def tokens(text):
    """Some tokens; the real ones need a vocabulary."""
    return (len(text) + 3) // 4


def pages(rows, params):
    """A page as the server answers it."""
    page, size = int(params.get("page", 1)), int(params.get("size", 50))
    start = (page - 1) * size
    return {
        "items": rows[start : start + size],
        "total": len(rows),
        "page": page,
        "size": size,
        "pages": -(-len(rows) // size),
    }


def counted(rows):
    """The four numbers of a queue."""
    states = [row.state for row in rows]
    return {
        "total_work_units": len(states),
        "completed_work_units": states.count("done"),
        "in_progress_work_units": states.count("running"),
        "pending_work_units": states.count("pending"),
    }


def by_session(rows):
    """Rows by the id that only the queue shows."""
    for nano in dict.fromkeys(row.session.nano for row in rows):
        yield nano, [row for row in rows if row.session.nano == nano]
