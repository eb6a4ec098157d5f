"""The routes to what Honcho derives: contexts, prose, cards, conclusions, the queue."""

from honcho_filters import Refused, matches
from honcho_model import Conclusion, by_session, counted, now, pages, ranked, tokens
from honcho_routing import Failed, check_filters, check_peer, check_query, invalid, route

from memory.testing import LoopbackAnswer

_COLUMNS = frozenset(
    {"id", "session_id", "workspace_id", "observer_id", "observed_id", "created_at", "level", "metadata"}
)


@route("GET", "/{}/sessions/{}/context")
def session_context(model, request, workspace_id, session_id):
    asked, workspace = request.params, model.looked_at(workspace_id)
    budget = int(asked.get("tokens", 100_000))
    if budget > 100_000:
        message = "Input should be less than or equal to 100000"
        raise invalid("less_than_equal", ["query", "tokens"], message, asked["tokens"])
    target = asked.get("peer_target")
    model.touch(workspace, session_id)
    prose, card = None, None
    if target is not None:
        check_peer(workspace, target)
        limited = asked.get("limit_to_session") == "true"
        prose = prose_of(model, workspace, target, asked, session_id if limited else None)
        card = None if limited else workspace.cards.get(target)
    spent = tokens(prose or "") + tokens("\n".join(card or ()))
    messages, summary = model.context(
        workspace.sessions.get(session_id), budget - spent, summary=asked.get("summary") != "false"
    )
    answer = {"id": session_id, "messages": messages, "summary": summary}
    return LoopbackAnswer(200, {**answer, "peer_representation": prose, "peer_card": card})


def prose_of(model, workspace, peer_id, asked, session_id):
    top_k, max_conclusions = (
        int(asked[name]) if name in asked else None for name in ("search_top_k", "max_conclusions")
    )
    return model.representation(
        workspace, peer_id, asked.get("search_query"), top_k, max_conclusions, session_id
    )


@route("GET", "/{}/peers/{}/context")
def peer_context(model, request, workspace_id, peer_id):
    workspace = model.looked_at(workspace_id)
    check_peer(workspace, peer_id)
    prose = prose_of(model, workspace, peer_id, request.params, None)
    card = workspace.cards.get(peer_id)
    answer = {"peer_id": peer_id, "target_id": peer_id, "representation": prose, "peer_card": card}
    return LoopbackAnswer(200, answer)


@route("POST", "/{}/peers/{}/representation")
def peer_representation(model, request, workspace_id, peer_id):
    asked = request.json or {}
    prose = prose_of(model, model.looked_at(workspace_id), peer_id, asked, asked.get("session_id"))
    return LoopbackAnswer(200, {"representation": prose})


@route("GET", "/{}/peers/{}/card")
def get_card(model, request, workspace_id, peer_id):
    workspace = model.looked_at(workspace_id)
    check_peer(workspace, peer_id)
    return LoopbackAnswer(200, {"peer_card": workspace.cards.get(peer_id)})


@route("PUT", "/{}/peers/{}/card")
def set_card(model, request, workspace_id, peer_id):
    workspace = model.workspace(workspace_id)
    model.peer(workspace, peer_id)
    workspace.cards[peer_id] = request.json["peer_card"]
    return LoopbackAnswer(200, {"peer_card": workspace.cards[peer_id]})


@route("POST", "/{}/peers/{}/chat")
def chat(model, request, workspace_id, peer_id):
    workspace = model.workspace(workspace_id)
    model.peer(workspace, peer_id)
    about = [conclusion.content for conclusion in workspace.conclusions if conclusion.peer_id == peer_id]
    best = ranked(request.json["query"], about, str)
    return LoopbackAnswer(200, {"content": best[0] if best else "I do not know."})


@route("GET", "/{}/sessions/{}/summaries")
def summaries(model, request, workspace_id, session_id):
    workspace = model.looked_at(workspace_id)
    model.touch(workspace, session_id)
    session = workspace.sessions.get(session_id)
    short = session.summary if session else None
    return LoopbackAnswer(200, {"id": session_id, "short_summary": short, "long_summary": None})


@route("GET", "/{}/queue/status")
def queue_status(model, request, workspace_id):
    rows, asked = model.looked_at(workspace_id).queue, request.params
    peer_id = asked.get("sender_id") or asked.get("observer_id")
    if peer_id is not None:
        rows = [row for row in rows if row.observed == peer_id]
    if "session_id" in asked:
        rows = [row for row in rows if row.session.id == asked["session_id"]]
        return LoopbackAnswer(200, {**counted(rows), "sessions": None})
    sessions = {nano: {"session_id": nano, **counted(own)} for nano, own in by_session(rows)}
    return LoopbackAnswer(200, {**counted(rows), "sessions": sessions or None})


@route("POST", "/{}/conclusions")
def make_conclusions(model, request, workspace_id):
    workspace = model.looked_at(workspace_id)
    made = []
    for given in request.json["conclusions"]:
        check_peer(workspace, given["observed_id"])
        conclusion = Conclusion(
            model.new_id("doc"), given["content"], given["observed_id"], given.get("session_id"), now(), now()
        )
        workspace.conclusions.append(conclusion)
        made.append(conclusion.row())
    return LoopbackAnswer(201, made)


def filtered(model, request, workspace_id):
    filters = check_filters((request.json or {}).get("filters"))
    found = sorted(
        model.looked_at(workspace_id).conclusions, key=lambda conclusion: conclusion.created_at, reverse=True
    )
    sources = ({"message_ids": list(conclusion.message_ids)} for conclusion in found)
    rows = [
        ({**conclusion.row(), "metadata": metadata}, conclusion)
        for conclusion, metadata in zip(found, sources, strict=True)
    ]
    return [conclusion.row() for row, conclusion in rows if matches(row, filters, _COLUMNS)]


@route("POST", "/{}/conclusions/list")
def list_conclusions(model, request, workspace_id):
    return LoopbackAnswer(200, pages(filtered(model, request, workspace_id), dict(request.params)))


@route("POST", "/{}/conclusions/query")
def query_conclusions(model, request, workspace_id):
    rows = filtered(model, request, workspace_id)
    if model.failing:
        raise Failed
    best = ranked(check_query(request.json["query"]), rows, lambda row: row["content"])
    return LoopbackAnswer(200, best[: request.json.get("top_k", 10)])


@route("DELETE", "/{}/conclusions/{}")
def delete_conclusion(model, request, workspace_id, conclusion_id):
    workspace = model.looked_at(workspace_id)
    kept = [conclusion for conclusion in workspace.conclusions if conclusion.id != conclusion_id]
    if len(kept) == len(workspace.conclusions):
        message = f"Document {conclusion_id} not found or does not belong to workspace {workspace_id}"
        raise Refused(404, message)
    workspace.conclusions[:] = kept
    return LoopbackAnswer(204)
