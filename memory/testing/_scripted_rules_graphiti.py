"""Graphiti 0.31's structured outputs: entities, facts, their times, duplicates and contradictions.

A fact is a statement as it stands in the message, between its speaker and the last thing it names. Two facts
contradict each other if they say of the same person where they live, where they work, or what their favourite
something is, and say it differently. A type that is asked for is recognised by words alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.adapter._scripted_rules import ChatRequest, Choice, Reply, Rule
from memory.adapter._scripted_text import (
    content_words,
    is_statement,
    lexical_overlap,
    python_literal,
    sentences,
)
from memory.contract._model import parse_time

_PEOPLE = frozenset({"person", "people", "human", "speaker"})
_VALUE = r"(?:\s+(?:is|are|was|of|=)|\s*:)\s+(?P<value>[\w.%-]+)"


@dataclass(frozen=True, slots=True)
class TypesOffered:
    """Types to choose from: (id or name, the words of its name and description); the default has no words."""

    kinds: Sequence[tuple[Any, frozenset[str]]]
    default: Any = None

    @classmethod
    def entities(cls, listed: str) -> TypesOffered:
        """As Graphiti lists them, a Python literal; without any, everything is a plain entity."""
        offered = python_literal(listed or "[{'entity_type_id': 0, 'entity_type_name': 'Entity'}]")
        kinds = {entry["entity_type_id"]: _type_words(entry, "entity_type") for entry in offered}
        plain = [entry["entity_type_id"] for entry in offered if entry["entity_type_name"] == "Entity"]
        return cls([kind for kind in kinds.items() if kind[0] not in plain], next(iter(plain), None))

    @classmethod
    def facts(cls, listed: str) -> TypesOffered:
        """As Graphiti lists them, JSON."""
        offered = json.loads(listed or "[]")
        return cls([(entry["fact_type_name"], _type_words(entry, "fact_type")) for entry in offered])

    def best(self, text: str, also: Iterable[str] = ()) -> Any:
        """The type whose words the text shares most, or the default where it shares none."""
        words = {*content_words(text), *also}
        shared = [(len(words & known), kind) for kind, known in self.kinds]
        count, kind = max(shared, key=lambda each: each[0], default=(0, None))
        return kind if count else self.default


def _type_words(entry: Mapping[str, Any], kind: str) -> frozenset[str]:
    name, description = str(entry[f"{kind}_name"]), entry.get(f"{kind}_description")
    return frozenset(content_words(f"{name.replace('_', ' ')} {description or ''}"))


def attributes_in(schema: Mapping[str, Any], text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each property: what the text says it is ("its flavour is malty"), what is known, or null."""
    found = {}
    for name, wanted in schema.get("properties", {}).items():
        match = re.search(rf"\b{re.escape(name).replace('_', '[ _]')}{_VALUE}", text, re.I)
        value = _typed(match["value"].rstrip("."), wanted) if match else None
        found[name] = known.get(name) if value is None else value
    return found


def _typed(text: str, wanted: Mapping[str, Any]) -> Any:
    kinds = {wanted.get("type"), *(entry.get("type") for entry in wanted.get("anyOf", ()))}
    if "boolean" in kinds:
        return {"yes": True, "true": True, "no": False, "false": False}.get(text.casefold())
    for kind, convert in (("integer", int), ("number", float)):
        if kind in kinds:
            try:
                return convert(text)
            except ValueError:
                return None
    return [text] if "array" in kinds else text


_SPEAKER = re.compile(r"^(?P<name>\w[\w' -]{0,40}): ")
_EPISODE = re.compile(r"^\[Episode (\d+)\] \(timestamp: ([^)]*)\)$")
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_OTHERS = frozenset({"assistant", "system", "developer", "tool"})
_SINCE = re.compile(r"\bsince (\d{4}-\d\d-\d\d)\b")
_UNTIL = re.compile(r"\buntil (\d{4}-\d\d-\d\d)\b")
_ASKS_ATTRIBUTES = re.compile(r"\A\s*Given the (?:MESSAGES and the following ENTITY|following FACT), ")
_EXCLUSIVE = re.compile(
    r"^(?P<who>.*?)\b(?:(?P<home>(?:live|lives|lived) in|moved to)|(?P<work>works? (?:at|for))|"
    r"favou?rite (?P<kind>\w+) is)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class _Fact:
    source: str
    relation: str
    target: str
    text: str
    episode: int
    moment: str | None


def _tag(prompt: str, *names: str) -> str:
    """The text between the first of these tags that the prompt has."""
    for name in names:
        match = re.search(rf"<{name}>\n?(.*?)\n?</{name}>", prompt, re.S)
        if match:
            return match.group(1)
    return ""


def _listed(prompt: str, name: str) -> list[dict[str, Any]]:
    return list(json.loads(_tag(prompt, name) or "[]"))


def _message(prompt: str) -> str:
    return _tag(prompt, "CURRENT MESSAGE", "CURRENT MESSAGES", "CURRENT_MESSAGE", "TEXT", "JSON")


def _lines(text: str) -> Iterator[tuple[str, str, int, str | None]]:
    """(speaker or "", line, episode, its time) of a message, a plain text, or an event as JSON."""
    if text.lstrip().startswith("{"):
        for message in (_parsed(text) or {}).get("messages", ()):
            for line in str(message.get("content", "")).split("\n"):
                yield str(message.get("name") or message.get("role")), line, 0, None
        return
    speaker, episode, moment = "", 0, None
    for line in text.split("\n"):
        if heading := _EPISODE.match(line):
            speaker, episode, moment = "", int(heading[1]), heading[2]
            continue
        if match := _SPEAKER.match(line):
            speaker = match["name"]
        yield speaker, line[match.end() :] if match else line, episode, moment


def _facts(text: str) -> Iterator[_Fact]:
    for speaker, line, episode, moment in _lines(text):
        for sentence in sentences(line):
            if speaker and not is_statement(sentence, speaker if speaker in _OTHERS else "user"):
                continue
            said = [token for token in _TOKEN.findall(sentence) if content_words(token)]
            source = speaker or next(iter(_names(sentence, first=True)), "")
            # The last thing it names: a proper name, else its last two words.
            dateless = _UNTIL.sub("", _SINCE.sub("", sentence))
            named, words = _names(dateless, first=False), [word for word in said if word in dateless]
            target = named[-1] if named else " ".join(words[-2:])
            if source and target and source.casefold() != target.casefold():
                verb = said[0] if speaker else next((item for item in said if item not in source), "is")
                yield _Fact(source, f"SAYS_{verb.upper()}", target, sentence, episode, moment)


def _names(sentence: str, *, first: bool) -> list[str]:
    """Runs of capitalised words; the first word of the sentence only counts where ``first``."""
    start = 0 if first else len(sentence) - len(sentence.lstrip().partition(" ")[2])
    found = re.findall(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*", sentence[start:])
    return [name for name in found if content_words(name)]


def _entities(prompt: str) -> dict[str, Any]:
    """The speakers and what they name, of the types offered; what is of none of them is left out."""
    text, types = _message(prompt), TypesOffered.entities(_tag(prompt, "ENTITY TYPES"))
    speakers = [speaker for speaker, _, _, _ in _lines(text) if speaker]
    named = [name for fact in _facts(text) for name in (fact.source, fact.target)]
    found = []
    for name in dict.fromkeys([*speakers, *named]):
        kind = types.best(name, _PEOPLE if name in speakers else ())
        if kind is not None:
            found.append({"name": name, "entity_type_id": kind, "episode_indices": [0]})
    return {"extracted_entities": found}


def _edges(prompt: str) -> Reply:
    known = {item["name"].casefold() for item in _listed(prompt, "ENTITIES")}
    asked = _iso(_tag(prompt, "REFERENCE_TIME").partition("#")[0])
    types = TypesOffered.facts(_tag(prompt, "FACT_TYPES"))
    edges = []
    for fact in _facts(_message(prompt)):
        if {fact.source.casefold(), fact.target.casefold()} <= known:
            edges.append({**_edge(fact, types), **_times(fact.text, _iso(fact.moment or "") or asked)})
    return {"edges": edges}


def _combined(prompt: str) -> Reply:
    types, found = TypesOffered.facts(_tag(prompt, "FACT TYPES")), _entities(prompt)
    for entity in found["extracted_entities"]:
        del entity["episode_indices"]
    return {**found, "edges": [_edge(fact, types) for fact in _facts(_message(prompt))]}


def _edge(fact: _Fact, types: TypesOffered) -> dict[str, Any]:
    return {
        "source_entity_name": fact.source,
        "target_entity_name": fact.target,
        "relation_type": types.best(fact.text) or fact.relation,
        "fact": fact.text,
        "episode_indices": [fact.episode],
    }


def _times(text: str, reference: str | None) -> dict[str, str | None]:
    """A fact holds from the reference time, or from and until the days it names."""
    since, until = _SINCE.search(text), _UNTIL.search(text)
    valid_at = f"{since[1]}T00:00:00Z" if since else reference
    return {"valid_at": valid_at, "invalid_at": f"{until[1]}T00:00:00Z" if until else None}


def _iso(text: str) -> str | None:
    moment = parse_time(text.strip(), naive_is_utc=True)
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _duplicates(prompt: str) -> Reply:
    new = _tag(prompt, "NEW FACT")
    existing = python_literal(_tag(prompt, "EXISTING FACTS") or "[]")
    candidates = python_literal(_tag(prompt, "FACT INVALIDATION CANDIDATES") or "[]")
    same = [item["idx"] for item in existing if _words(item["fact"]) == _words(new)]
    against = [item["idx"] for item in (*existing, *candidates) if _contradict(item["fact"], new)]
    return {"duplicate_facts": same, "contradicted_facts": against}


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text.casefold())


def _contradict(old: str, new: str) -> bool:
    about = []
    for match in (_EXCLUSIVE.search(old), _EXCLUSIVE.search(new)):
        if match is None:
            return False
        kind = "home" if match["home"] else "work" if match["work"] else str(match["kind"]).casefold()
        about.append((_words(match["who"]), kind))
    return about[0] == about[1] and _words(old) != _words(new)


def _timestamps(prompt: str) -> Reply:
    return _times(_tag(prompt, "FACT"), _iso(_tag(prompt, "REFERENCE TIME")))


def _batch_timestamps(prompt: str) -> Reply:
    facts = [(str(item["fact"]), str(item.get("reference_time"))) for item in _listed(prompt, "FACTS")]
    return {"timestamps": [_times(fact, _iso(reference)) for fact, reference in facts]}


def _same_entities(prompt: str) -> Reply:
    existing = _listed(prompt, "EXISTING ENTITIES")
    known = {str(item["name"]).casefold(): item["candidate_id"] for item in existing}
    found = []
    for item in _listed(prompt, "ENTITIES"):
        same = known.get(str(item["name"]).casefold(), -1)
        found.append({"id": item["id"], "name": item["name"], "duplicate_candidate_id": same})
    return {"entity_resolutions": found}


def _entity_summaries(prompt: str) -> Reply:
    said, found = list(_facts(_last_message(prompt))), []
    for item in _parsed(_tag(prompt, "ENTITIES")) or ():
        about = [fact.text for fact in said if item["name"] in (fact.source, fact.target)]
        if about:
            found.append({"name": item["name"], "summary": _joined([item.get("summary"), *about])})
    return {"summaries": found}


def _parsed(text: str) -> Any:
    """Its JSON, or None."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _last_message(prompt: str) -> str:
    return str(_parsed(_tag(prompt, "MESSAGES").rstrip().rpartition("\n")[2]) or "")


def _joined(parts: Iterable[object]) -> str:
    return " ".join(dict.fromkeys(str(part) for part in parts if part))[:400]


def _joint_summary(prompt: str) -> Reply | None:
    value = _parsed(prompt.rpartition("Summaries:")[2])
    return None if value is None else {"summary": _joined(value if isinstance(value, list) else [value])}


def _description(prompt: str) -> Reply | None:
    value = _parsed(prompt.rpartition("Summary:")[2])
    return None if value is None else {"description": next(sentences(str(value)), "nothing")}


def _attributes(request: ChatRequest) -> Reply | None:
    """The attributes of an entity or a fact, as its text tells them; else those it has."""
    prompt, schema = request.last_user, request.schema
    if schema is None or not _ASKS_ATTRIBUTES.match(prompt):
        return None
    fact = _tag(prompt, "FACT")
    if fact:
        return attributes_in(schema, fact, json.loads(_tag(prompt, "EXISTING ATTRIBUTES") or "{}"))
    entity, message = python_literal(_tag(prompt, "ENTITY")), _last_message(prompt)
    name = str(entity["name"]).casefold()
    about = [
        sentence
        for speaker, line, _, _ in _lines(message or _tag(prompt, "MESSAGES"))
        for sentence in sentences(line)
        if name == speaker.casefold() or name in sentence.casefold()
    ]
    return attributes_in(schema, "\n".join(about), entity.get("attributes") or {})


def _relevance(request: ChatRequest) -> Reply | None:
    """Whether a passage is about a query: as likely as the share of the query's words that are in it."""
    prompt = request.last_user
    if "<PASSAGE>" not in prompt or "<QUERY>" not in prompt:
        return None
    true = min(0.99, max(0.01, lexical_overlap(_tag(prompt, "QUERY"), _tag(prompt, "PASSAGE"))))
    return Choice({"True": true, "False": 1 - true})


_BY_SCHEMA: Mapping[str, Callable[[str], Reply | None]] = {
    "ExtractedEntities": _entities,
    "ExtractedEdges": _edges,
    "CombinedExtraction": _combined,
    "EdgeDuplicate": _duplicates,
    "EdgeTimestamps": _timestamps,
    "BatchEdgeTimestamps": _batch_timestamps,
    "NodeResolutions": _same_entities,
    "SummarizedEntities": _entity_summaries,
    "Summary": _joint_summary,
    "SummaryDescription": _description,
}


def _structured(request: ChatRequest) -> Reply | None:
    rule = _BY_SCHEMA.get(request.schema_name or "")
    return None if rule is None else rule(request.last_user)


rules: tuple[Rule, ...] = (_relevance, _attributes, _structured)
