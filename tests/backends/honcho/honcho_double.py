"""A Honcho server on the loopback: the routes of :class:`HonchoModel`, as version 3.0.12 answers them."""

import honcho_derived  # noqa: F401 (registers its routes)
from honcho_filters import Refused, matches
from honcho_model import HonchoModel, pages, ranked
from honcho_routing import (
    ID,
    ROUTES,
    SPECIAL,
    UNFORESEEN,
    Failed,
    check_filters,
    check_id,
    check_query,
    invalid,
    route,
)

from memory.testing import LoopbackAnswer, LoopbackServer

_COLUMNS = frozenset({"workspace_id", "session_id", "peer_id", "token_count", "created_at", "metadata"})


class HonchoDouble(LoopbackServer):
    """The server, without auth.

    Args:
        delays: of :class:`HonchoModel`.
    """

    def __init__(self, **delays):
        super().__init__()
        self.model = HonchoModel(**delays)

    def handle(self, request):
        self.model.advance()
        if request.path == "/health":
            return LoopbackAnswer(200, {"status": "ok"})
        if request.path == "/openapi.json":
            return LoopbackAnswer(200, {"openapi": "3.1.0", "info": {"version": "3.0.12"}})
        if (refusal := self._not_allowed(request.path)) is not None:
            return LoopbackAnswer(401, {"detail": refusal})
        try:
            return self._routed(request)
        except Refused as refused:
            return LoopbackAnswer(refused.status, {"detail": refused.detail})
        except Failed:
            return LoopbackAnswer(500, {"detail": "An unexpected error occurred"}, drop=True)

    def _not_allowed(self, path):
        """What a key for one workspace may not do; making that workspace, it may."""
        only_for = self.model.only_for
        if only_for is None or path == "/v3/workspaces" or path.startswith(f"/v3/workspaces/{only_for}/"):
            return None
        if path == "/v3/workspaces/list":
            return "Resource requires admin privileges"
        return "JWT not permissioned for this resource"

    def _routed(self, request):
        elsewhere = False
        for method, pattern, handler in ROUTES:
            match = pattern.fullmatch(request.path)
            if match and method == request.method:
                return handler(self.model, request, *match.groups())
            elsewhere = elsewhere or match is not None
        raise Refused(405, "Method Not Allowed") if elsewhere else Refused(404, "Not Found")

    def state(self):
        """What clients wrote and what came of it, once the worker is done."""
        with self._handling:
            self.model.advance(to_the_end=True)
            return {
                workspace.id: {
                    "peers": workspace.peers,
                    "sessions": {
                        session.id: session.messages
                        for session in workspace.sessions.values()
                        if session.is_active
                    },
                    "conclusions": [conclusion.row() for conclusion in workspace.conclusions],
                    "cards": workspace.cards,
                }
                for workspace in self.model.workspaces.values()
            }


@route("POST", "")
def make_workspace(model, request):
    check_id(request.json["id"])
    known = request.json["id"] in model.workspaces
    workspace = model.workspace(request.json["id"])
    return LoopbackAnswer(200 if known else 201, shown(workspace))


def shown(workspace):
    made = {"id": workspace.id, "metadata": workspace.metadata, "configuration": {}}
    return {**made, "created_at": workspace.created_at}


@route("POST", "/list")
def list_workspaces(model, request):
    wanted = ((request.json or {}).get("filters") or {}).get("id")
    rows = [shown(workspace) for workspace in model.workspaces.values() if wanted in (None, workspace.id)]
    return LoopbackAnswer(200, pages(rows, dict(request.params)))


@route("DELETE", "/{}")
def delete_workspace(model, request, workspace_id):
    if workspace_id not in model.workspaces:
        raise Refused(404, f"Workspace {workspace_id} not found")
    if any(session.is_active for session in model.workspaces[workspace_id].sessions.values()):
        message = (
            f"Cannot delete workspace '{workspace_id}': active session(s) remain. Delete all sessions first."
        )
        raise Refused(409, message)
    model.later(model.delete_s, lambda: model.workspaces.pop(workspace_id, None) and None)
    return LoopbackAnswer(202, {"message": "Workspace deletion accepted"})


@route("POST", "/{}/peers")
def make_peer(model, request, workspace_id):
    check_id(request.json["id"])
    workspace = model.workspace(workspace_id)
    known = request.json["id"] in workspace.peers
    peer = model.peer(workspace, request.json["id"])
    for name in ("metadata", "configuration"):
        if request.json.get(name) is not None:
            peer[name] = request.json[name]
    return LoopbackAnswer(200 if known else 201, peer)


@route("POST", "/{}/peers/list")
def list_peers(model, request, workspace_id):
    rows = list(model.looked_at(workspace_id).peers.values())
    return LoopbackAnswer(200, pages(rows, dict(request.params)))


@route("POST", "/{}/sessions")
def make_session(model, request, workspace_id):
    check_id(request.json["id"])
    workspace = model.workspace(workspace_id)
    known = request.json["id"] in workspace.sessions
    session = model.session(workspace, request.json["id"])
    if request.json.get("metadata") is not None:
        session.metadata = request.json["metadata"]
    for peer_id, config in (request.json.get("peers") or {}).items():
        model.peer(workspace, peer_id)
        if "observe_me" in config:
            session.observe_me[peer_id] = config["observe_me"]
    return LoopbackAnswer(200 if known else 201, listed(workspace, session))


def listed(workspace, session):
    made = {"id": session.id, "is_active": session.is_active, "workspace_id": workspace.id}
    return {**made, "metadata": session.metadata, "configuration": {}, "created_at": session.created_at}


@route("POST", "/{}/sessions/list")
def list_sessions(model, request, workspace_id):
    workspace = model.looked_at(workspace_id)
    rows = [listed(workspace, session) for session in workspace.sessions.values() if session.is_active]
    return LoopbackAnswer(200, pages(rows, dict(request.params)))


@route("DELETE", "/{}/sessions/{}")
def delete_session(model, request, workspace_id, session_id):
    workspace = model.looked_at(workspace_id)
    session = workspace.sessions.get(session_id)
    if session is None or not session.is_active:
        raise Refused(404, f"Session {session_id} not found in workspace {workspace_id}")
    model.delete_session(workspace, session)
    return LoopbackAnswer(202, {"message": "Session deleted successfully"})


@route("POST", "/{}/sessions/{}/messages")
def add_messages(model, request, workspace_id, session_id):
    said = request.json["messages"]
    if not 1 <= len(said) <= 100:
        kind = "too_short" if not said else "too_long"
        raise invalid(kind, ["body", "messages"], f"List should have 1 to 100 items, not {len(said)}", said)
    for position, message in enumerate(said):
        check_message(position, message)
    workspace = model.workspace(workspace_id)
    stored = model.add(workspace, model.session(workspace, session_id), said)
    return LoopbackAnswer(201, stored)


def check_message(position, message):
    content, where = message["content"], ["body", "messages", position]
    if len(content) > 25_000:
        problem = "String should have at most 25000 characters"
        raise invalid("string_too_long", [*where, "content"], problem, content)
    if any(token in content for token in SPECIAL):
        raise invalid("value_error", where, f"Value error, Encountered text {content!r}", message)
    if any(token in content for token in UNFORESEEN):
        raise Failed
    metadata = message.get("metadata") or {}
    if depth(metadata) > 5:
        problem = "Value error, Metadata nesting exceeds maximum depth of 5"
        raise invalid("value_error", [*where, "metadata"], problem, metadata)
    if len(metadata) > 100:
        problem = "Value error, Metadata exceeds maximum of 100 top-level keys"
        raise invalid("value_error", [*where, "metadata"], problem, metadata)
    if not ID.fullmatch(message["peer_id"]):
        raise Refused(422, f"Peer name(s) ['{message['peer_id']}'] must match pattern ^[a-zA-Z0-9_-]+$")


def depth(value):
    return 1 + max(map(depth, value.values()), default=0) if isinstance(value, dict) else 0


@route("POST", "/{}/sessions/{}/messages/list")
def list_messages(model, request, workspace_id, session_id):
    session = model.looked_at(workspace_id).sessions.get(session_id)
    filters = check_filters((request.json or {}).get("filters"))
    rows = [
        message for message in (session.messages if session else []) if matches(message, filters, _COLUMNS)
    ]
    return LoopbackAnswer(200, pages(rows, dict(request.params)))


def found_message(model, workspace_id, session_id, message_id):
    session = model.looked_at(workspace_id).sessions.get(session_id)
    for message in session.messages if session else []:
        if message["id"] == message_id:
            return message
    raise Refused(404, f"Message with ID {message_id} not found")


@route("GET", "/{}/sessions/{}/messages/{}")
def get_message(model, request, *ids):
    return LoopbackAnswer(200, found_message(model, *ids))


@route("PUT", "/{}/sessions/{}/messages/{}")
def update_message(model, request, *ids):
    message = found_message(model, *ids)
    message["metadata"] = request.json["metadata"]
    return LoopbackAnswer(200, message)


def search(model, request, workspace_id, **only):
    body = request.json
    if not 1 <= body.get("limit", 10) <= 100:
        raise invalid("less_than_equal", ["body", "limit"], "Input should be 1 to 100", body["limit"])
    if model.failing:
        raise Failed
    query, filters = check_query(body["query"]), check_filters(body.get("filters"))
    rows = [
        message
        for session in model.looked_at(workspace_id).sessions.values()
        for message in session.messages
        if matches(message, filters, _COLUMNS) and all(message[name] == value for name, value in only.items())
    ]
    return LoopbackAnswer(200, ranked(query, rows, lambda row: row["content"])[: body.get("limit", 10)])


@route("POST", "/{}/search")
def search_all(model, request, workspace_id):
    return search(model, request, workspace_id)


@route("POST", "/{}/peers/{}/search")
def search_peer(model, request, workspace_id, peer_id):
    return search(model, request, workspace_id, peer_id=peer_id)


@route("POST", "/{}/sessions/{}/search")
def search_session(model, request, workspace_id, session_id):
    return search(model, request, workspace_id, session_id=session_id)
