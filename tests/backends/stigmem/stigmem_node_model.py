"""What a Stigmem node does with a request, without the network: facts, recall, keys and tenants.

Modelled on a real node's answers (recorded in ``pairs/`` and replayed against this model), its traps included:
the same content is stored once, two facts on one entity and relation contradict each other, a ref without
``://`` reads back as null, an entity at confidence 0.5 or more is replaced by a card in recall, FTS5 AND-s words,
a number that is none is a plain-text 500, and only the multi-tenant plugin keeps tenants apart.
"""

import hashlib
import json
import re
import sqlite3
import unicodedata
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

ADMIN_KEY = "admin-key-of-the-double-0123456789abcdef"
SCOPES = ("local", "public", "team", "company")
TYPES = ("string", "datetime", "null", "ref", "number", "boolean", "text")
_FORMAL = re.compile(r"^stigmem://([^/]+)/([^/]+)/(.+)$")
_BIDI = {chr(code) for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SENTINELS = (r"\bignore\s+(all\s+)?previous\s+instructions?\b", r"\bHuman:\s*", r"\bAssistant:\s*")


@dataclass
class Answer:
    """Status, body (JSON-ready, or text for the node's unhandled failures) and further headers."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):
    """An HTTPException of the node."""

    def __init__(self, status, detail):
        super().__init__(status)
        self.answer = Answer(status, {"detail": detail})


class Unhandled(Exception):
    """The node's own code failed: a plain-text 500, and the connection goes."""


@dataclass
class Caller:
    """Who asks, by their key."""

    entity_uri: str = "anon:trusted"
    permissions: tuple[str, ...] = ("federate", "read", "write")
    tenant_id: str = "default"


Request = Mapping[str, Any]
Handler = Callable[["NodeModel", Caller, tuple[str, ...], Request], Answer]
ROUTES = []


def route(method, pattern):
    """Register a handler ``(model, caller, path groups, request)``; later ones win."""

    def register(handler):
        ROUTES.insert(0, (method, re.compile(pattern + r"\Z"), handler))
        return handler

    return register


def now():
    return datetime.now(UTC).isoformat()


def invalid(loc, kind, message, given):
    """Pydantic's answer to one bad field of the body; it repeats what was sent."""
    return Refused(422, [{"type": kind, "loc": ["body", loc], "msg": message, "input": given}])


class NodeModel:
    """The state of one node.

    Args:
        auth: require a bearer key; :data:`ADMIN_KEY` is then the one that exists.
        multi_tenant: the plugin is on; without it every key lives in tenant ``default``.
    """

    def __init__(self, *, auth=False, multi_tenant=False):
        self.auth = auth
        self.multi_tenant = multi_tenant
        self.node_id = f"stigmem:node:{uuid.uuid4()}"
        self.facts: list[dict[str, Any]] = []
        self.keys: dict[str, dict[str, Any]] = {}
        self.intents: dict[str, dict[str, Any]] = {}
        self._ticks = 0
        self._fts = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._fts.close)  # Python 3.13 warns of one that is left open
        self._fts.execute(
            "CREATE VIRTUAL TABLE fts USING fts5(entity, relation, value_v,"
            " tokenize='unicode61 remove_diacritics 1')"
        )
        if auth:
            self.keys[ADMIN_KEY] = self._key("agent:admin", ["admin", "write", "read"], "default", None)

    def handle(self, method, path, request):
        """Answer one request: ``params``, ``headers`` (lower-case names) and ``json``."""
        try:
            for verb, pattern, handler in ROUTES:
                match = pattern.match(path)
                if match and verb == method:
                    open_to_all = path in ("/.well-known/stigmem", "/healthz")
                    caller = Caller() if open_to_all else self._caller(request["headers"])
                    return handler(self, caller, match.groups(), request)
            known = any(pattern.match(path) for _, pattern, _ in ROUTES)
            return Answer(405 if known else 404, {"detail": "Method Not Allowed" if known else "Not Found"})
        except Refused as refusal:
            return refusal.answer
        except Unhandled:
            return Answer(500, "Internal Server Error")

    def _caller(self, headers):
        given = headers.get("authorization", "")
        if not self.auth:
            return Caller()
        if not given.startswith("Bearer "):
            raise Refused(401, "Authorization header required")
        key = self.keys.get(given.removeprefix("Bearer "))
        if key is None or key["expires_at"] <= now():
            raise Refused(401, "Invalid or expired API key")
        tenant = key["tenant_id"] if self.multi_tenant else "default"
        return Caller(key["entity_uri"], tuple(sorted(key["permissions"])), tenant)

    def _key(self, entity, permissions, tenant, description):
        moment = datetime.now(UTC).replace(microsecond=0)
        return {
            "id": str(uuid.uuid4()),
            "entity_uri": entity,
            "permissions": permissions,
            "description": description,
            "created_at": moment.isoformat(),
            "expires_at": (moment + timedelta(days=90)).isoformat(),
            "tenant_id": tenant,
        }

    def add_key(self, raw, entity, permissions, tenant, text):
        if raw in self.keys:
            raise Refused(409, "raw_key already exists; generate a new key value")
        self.keys[raw] = self._key(entity, sorted(permissions), tenant, text)
        return self.keys[raw]

    def add(self, tenant, **fields):
        """Store a row as it is and index it."""
        self._ticks += 1
        row = {
            "id": str(uuid.uuid4()),
            "timestamp": now(),
            "hlc": f"{int(datetime.now(UTC).timestamp() * 1000)}.{self._ticks % 1000}",
            "valid_until": None,
            "garden_id": None,
            "derived_from": [],
            "contradicted": False,
            "cid": None,
            "tenant_id": tenant,
            **fields,
        }
        self.facts.append(row)
        text = row.setdefault("text", encoded(row["value"]["type"], row["value"]["v"]))
        self._fts.execute(
            "INSERT INTO fts (rowid, entity, relation, value_v) VALUES (?, ?, ?, ?)",
            (len(self.facts), row["entity"], row["relation"], text),
        )
        return row

    def of(self, tenant):
        return [row for row in self.facts if row["tenant_id"] == tenant]

    def search(self, query, allowed, limit):
        """Fact id -> score from 0 to 1, by FTS5, or by LIKE where the query is no FTS5 expression."""
        cleaned = re.sub(r'["()\^*\-:,]+', " ", query).strip() or '""'
        try:
            found = self._fts.execute(
                "SELECT rowid, -bm25(fts) FROM fts WHERE fts MATCH ? ORDER BY bm25(fts)", (cleaned,)
            ).fetchall()
        except sqlite3.OperationalError:
            return self._like(query, allowed, limit)
        hits = [(self.facts[rowid - 1], score) for rowid, score in found]
        hits = [(row, score) for row, score in hits if allowed(row)][:limit]
        best = max((score for _, score in hits), default=0.0)
        return {row["id"]: score / best for row, score in hits} if best > 0 else {}

    def _like(self, query, allowed, limit):
        words = [word.lower() for word in re.sub(r"[^\w]", " ", query).split() if len(word) >= 2][:5]
        hits = [
            row
            for row in self.facts
            if allowed(row) and any(word in f"{row['value']['v']} {row['entity']}".lower() for word in words)
        ]
        hits = sorted(hits, key=lambda row: -row["confidence"])[:limit]
        best = max((row["confidence"] for row in hits), default=0.0)
        return {row["id"]: row["confidence"] / best for row in hits} if best > 0 else {}


def encoded(kind, v):
    """A value as the node keeps it, indexes it and counts it into the content id: as it was sent."""
    if kind == "null":
        return "null"
    return ("true" if v else "false") if kind == "boolean" else str(v)


def live(row):
    return row["valid_until"] is None or row["valid_until"] > now()


def content_id(row):
    body = {
        "confidence": row["confidence"],
        "entity": row["entity"],
        "relation": row["relation"],
        "scope": row["scope"],
        "source": row["source"],
        "value_type": row["value"]["type"],
        "value_v": row["text"],
    }
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def normalised(uri, where):
    if not uri.strip():
        raise Refused(400, f"invalid_{where}_uri: {where} URI must not be empty")
    match = _FORMAL.match(uri.strip())
    if match is None:
        return re.sub(r"\s+", "-", uri.strip().lower())
    authority, kind, rest = (part.strip().lower() for part in match.groups())
    return f"stigmem://{authority}/{kind}/" + re.sub(r"\s+", "-", rest)


def record(row, *, read):
    """A row as the node shows it; reading passes the sanitizer, the answer to a write does not."""
    value = {"interpret_as": "content", **row["value"]}
    shown = {
        **{
            name: row[name]
            for name in ("id", "entity", "relation", "source", "timestamp", "hlc", "confidence")
        },
        **{name: row[name] for name in ("scope", "valid_until", "garden_id", "contradicted", "cid")},
        "derived_from": row["derived_from"],
        "value": value,
        "warnings": [],
        "sanitizer_warnings": [],
        "sanitizer_redacted": False,
        "source_trust": 0.255 if read else None,
        "effective_confidence": 0.255 * row["confidence"] if read else None,
        **dict.fromkeys(("received_from", "attested_key_id", "origin_node_id", "origin_allowed_scopes")),
        **dict.fromkeys(("attested", "quarantine_status", "quarantine_garden_id")),
    }
    if not read:
        prefixed = ":" in row["relation"]
        shown["warnings"] = [] if prefixed else [f"bare relation {row['relation']!r} has no namespace prefix"]
        return shown
    shown["contradicted"] = False
    if value["type"] == "ref" and "://" not in str(value["v"]) and not str(value["v"]).startswith("urn:"):
        shown["value"] = {**value, "v": None}
        shown["sanitizer_redacted"] = True
    elif value["type"] in ("string", "text"):
        text = unicodedata.normalize("NFKC", str(value["v"]))
        text = _CONTROL.sub("", "".join(char for char in text if char not in _BIDI))
        shown["value"] = {**value, "v": text}
        shown["sanitizer_warnings"] = [pattern for pattern in _SENTINELS if re.search(pattern, text, re.I)]
    return shown
