"""Translates messages into facts, and the hits of a recall into context entries.

Each message is a separate entity. Two facts on the same entity and relation would contradict each other, and
the node's work on contradictions grows with their square. Entities are hashes, because the node matches words
in entities like words in texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from memory import MemoryEvent
from memory.adapter import ContextEntry, Operation
from memory.adapter.fields import AwareDatetime, normalise, parse_time
from memory.backends.stigmem.client import ScopeIds
from memory.stigmem.client import MAX_LIMIT
from memory.stigmem.facts import Fact, FactScope, FactValue, NewFact, render_value

UTTERANCE = "memory:utterance"
FACT_SCOPE: FactScope = "company"
MAX_TERMS = 128

# FTS5 reads a run of Chinese, Japanese or Korean as one word. An invisible space makes each sign a word.
_SIGN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_SPACE = "\u200b"
_SPLIT = re.compile(f"([{_SIGN}])")
_JOIN = re.compile(f"([{_SIGN}]){_SPACE}")
_TERM = re.compile(rf"[{_SIGN}]|[^\W_{_SIGN}]+")


def message_facts(event: MemoryEvent, ids: ScopeIds) -> list[NewFact]:
    facts = []
    for index, message in enumerate(event.messages):
        text = message.content or json.dumps(message.tool_calls, ensure_ascii=False)
        # The node stores this verbatim and never searches it.
        known = {
            "scope": ids.name,
            "event_id": event.event_id,
            "index": index,
            "session_id": event.session_id,
            **event.labels,
            "timestamp": event.timestamp.isoformat(),
            "role": message.role,
            "name": message.name,
            "tool_call_id": message.tool_call_id,
            "tool_calls": list(message.tool_calls) if message.content and message.tool_calls else None,
            "metadata": event.metadata or None,
        }
        fact = NewFact(
            entity=ids.message(event.event_id, index),
            relation=UTTERANCE,
            value=FactValue(type="text", v=_SPLIT.sub(rf"\1{_SPACE}", text)),
            source=ids.source,
            scope=FACT_SCOPE,
            confidence=0.49,  # from 0.5, recall returns a card of the entity, without id, time or rank
            derived_from=({name: value for name, value in known.items() if value is not None},),
        )
        facts.append(fact)
    return facts


# ``facts`` takes the parameters of ``GET /v1/facts`` that cannot reach other scopes.
QUERIES = {
    "facts": Operation(
        {
            "entity": str,
            "relation": str,
            "min_confidence": Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)],
            "include_contradicted": bool,
            "include_expired": bool,
            "after": AwareDatetime,
            "limit": Annotated[int, Field(ge=1, le=MAX_LIMIT)],
        }
    )
}


def search_terms(texts: Iterable[str]) -> list[str]:
    """The distinct terms as the node's tokenizer splits them. Lower case, because capitals are operators."""
    words = (word for text in texts for word in _TERM.findall(normalise("NFC", text).lower()))
    return list(dict.fromkeys(words))


def recall_query(terms: Iterable[str], ids: ScopeIds) -> str:
    """A query for any of the terms. On a node without tenants, each term is combined with the scope's mark.

    The node strips parentheses, and AND binds tighter than OR.
    """
    return " OR ".join(f"{ids.mark} AND {term}" if ids.marked else term for term in terms)


def to_entry(hit: Mapping[str, Any], ids: ScopeIds) -> ContextEntry:
    """An utterance becomes an entry with its event's time and role. Other facts have the node's time."""
    fact = Fact(**hit["fact"])
    score = hit.get("score")
    score = float(score) if isinstance(score, (int, float)) else None
    sources = (source for source in fact.derived_from if isinstance(source, dict))
    provenance = next((source for source in sources if "scope" in source), None)
    if fact.relation != UTTERANCE or provenance is None:
        return ContextEntry(
            f"{fact.relation}: {render_value(fact)}",
            native_id=fact.id,
            score=score,
            timestamp=fact.stored_at,
            labels=(("about", fact.entity),),
            # Only holders of the tenant's key write into a tenant. On a node without tenants, any client may.
            scope_ids={"scope": "unlabelled"} if ids.marked else None,
        )
    return ContextEntry(
        _JOIN.sub(r"\1", str(fact.value.v or "")),
        native_id=fact.id,
        score=score,
        timestamp=parse_time(provenance.get("timestamp")),
        labels=(("role", str(provenance["role"])),) if provenance.get("role") else (),
        event_ids=(str(provenance["event_id"]),) if provenance.get("event_id") else (),
        session_id=str(provenance["session_id"]) if provenance.get("session_id") else None,
        scope_ids={"scope": ids.scope_id if provenance["scope"] == ids.name else str(provenance["scope"])},
    )
