"""How the double finds a route, and what its routes check alike."""

import re
from collections.abc import Callable

from honcho_filters import Refused
from honcho_model import tokens

from memory.testing import LoopbackAnswer

ID = re.compile(r"[a-zA-Z0-9_-]{1,512}")
SPECIAL = ("<|endoftext|>", "<|endofprompt|>")
UNFORESEEN = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
Route = Callable[..., LoopbackAnswer]
ROUTES = []


def route(method, path):
    """Register a route; ``{}`` in the path is an id, given to the handler."""
    pattern = re.compile("/v3/workspaces" + path.replace("{}", "([^/]+)"))

    def register(handler):
        ROUTES.append((method, pattern, handler))
        return handler

    return register


class Failed(Exception):
    """An unhandled failure of the server."""


def invalid(kind, loc, msg, given):
    """A 422 as pydantic words it, with what was sent in it."""
    return Refused(422, [{"type": kind, "loc": loc, "msg": msg, "input": given}])


def check_id(value):
    if len(value) > 512:
        raise invalid("string_too_long", ["body", "id"], "String should have at most 512 characters", value)
    if not ID.fullmatch(value):
        msg = "String should match pattern '^[a-zA-Z0-9_-]+$'"
        raise invalid("string_pattern_mismatch", ["body", "id"], msg, value)


def check_filters(filters):
    if "\\x00" in repr(filters):
        raise Failed
    return filters


def check_query(query):
    if any(token in query for token in SPECIAL + UNFORESEEN) or tokens(query) > 8192:
        raise Refused(422, "Query exceeds maximum token limit of 8192.")
    return query


def check_peer(workspace, peer_id):
    if peer_id not in workspace.peers:
        raise Refused(404, f"Peer {peer_id} not found in workspace {workspace.id}")
