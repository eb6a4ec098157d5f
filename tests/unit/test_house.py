"""The house as a whole: no circles of imports inside a room, and how far it is from a host to an adapter."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from journals import open_journal
from slot_support import ALICE, Obedient, ask, event

import memory
from memory import MemoryEvent, MemorySlot, Message
from memory.adapter.fields import Text
from memory.contract._model import words_of
from memory.slot.rendering import without_recalled_context

ROOT = Path(memory.__file__).parents[1]


@cache
def imports():
    """Module -> the modules of ours that it imports, late or for type checkers included."""
    files = {path for room in ("memory", "conditions") for path in (ROOT / room).rglob("*.py")}
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files
    }
    graph = {}
    for name, path in names.items():
        inside = set()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                inside |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                inside |= {alias.name for alias in node.names}
        # A package's page is not what a module of it asks for.
        graph[name] = {other for other in inside & names.keys() if names[other].name != "__init__.py"} - {
            name
        }
    return graph


def circles(graph):
    """Groups of modules that import each other, however many there are between."""
    reach = {}

    def reachable(start):
        if start not in reach:
            seen, waiting = set(), [start]
            while waiting:
                for other in graph.get(waiting.pop(), ()):
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
            reach[start] = seen
        return reach[start]

    return sorted(name for name in graph if name in reachable(name))


@pytest.mark.thorough
def test_no_module_imports_itself_by_way_of_others():
    assert circles(imports()) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


PLUGINS_AND_HOSTS = ("conditions", "memory.backends", "memory.hosts")


def behind_a_page(graph):
    """Modules of plugins and hosts that reach past a page, and backends that know another one."""
    for name, others in graph.items():
        for other in others if name.startswith(PLUGINS_AND_HOSTS) else ():
            past = re.match(
                r"memory\.(adapter(?!\.(fields|http|models|sdk|stores)$)|runtime|testing)\.", other
            )
            room = re.match(r"memory\.backends\.\w+", other)
            if past or (room and not f"{name}.".startswith(f"{room[0]}.")):
                yield f"{name} -> {other}"


@pytest.mark.thorough
def test_plugins_and_hosts_ask_the_pages_and_no_other_plugin():
    assert list(behind_a_page(imports())) == []
    for wrong in (
        {"memory.backends.honcho.client": {"memory.adapter._base"}},
        {"memory.backends.honcho.client": {"memory.backends.mem0.options"}},
        {"memory.hosts.adk": {"memory.runtime._policy"}},
        {"conditions.simple_rag": {"memory.backends.mem0.options"}},
    ):
        assert len(list(behind_a_page(wrong))) == 1


ROOMS = [ROOT / "conditions", *(path.parent for path in sorted(ROOT.glob("memory/*/__init__.py")))]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_says_what_enters_and_what_does_not(room):
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert "Enters: " in said.replace("\n", " ")
    assert "Stays out: " in said.replace("\n", " ")


class Counting(Obedient):
    """Counts the calls of ours that stand above it."""

    def frames(self):
        frame, found = sys._getframe(2), []
        while frame is not None:
            if "/memory/" in frame.f_code.co_filename:
                found.append(
                    f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"
                    if sys.version_info >= (3, 11)
                    else frame.f_code.co_name
                )
            frame = frame.f_back
        return found

    async def record_event(self, event):
        self.written = self.frames()
        return await super().record_event(event)

    async def retrieve(self, request):
        self.read = self.frames()
        return await super().retrieve(request)


@pytest.mark.parametrize("journal", [False, True])
async def test_the_way_to_an_adapter_is_short(tmp_path, journal):
    """From a person's view; the slot itself, which is a contract too, is one less."""
    adapter = Counting()
    kept = open_journal(tmp_path) if journal else None
    async with MemorySlot(adapter, scope=ALICE, journal=kept) as slot:
        view = slot.for_scope()
        await view.after_turn(session_id="s", user="hello")
        await view.before_turn("hello?", session_id="s2")
    assert len(adapter.written) <= (10 if journal else 9), adapter.written
    assert len(adapter.read) <= 5, adapter.read


SECTION = '<memory-context backend="b" scope="s">recalled</memory-context>'


@pytest.mark.parametrize("model", [Message, MemoryEvent])
def test_every_text_and_json_of_an_event_is_stripped_by_its_type(model):
    """A field that is added later is not forgotten."""

    class Wider(model):
        mood: Text | None = None

    assert words_of(Wider)[-1] == "mood"
    for name in words_of(model):
        words = f"kept {SECTION}"
        planted = {"metadata": {"deep": [words]}, "tool_calls": ({"id": "1", "note": words},)}.get(
            name, words
        )
        if model is Message:
            said = event().model_copy(
                update={"messages": (Message(role="tool", content="x", **{name: planted}),)}
                if name != "content"
                else {"messages": (Message(role="user", content=words),)}
            )
            left = getattr(without_recalled_context(said).messages[0], name)
        else:
            left = getattr(without_recalled_context(event().model_copy(update={name: planted})), name)
        assert "recalled" not in str(left), name
        assert "kept" in str(left), name


def test_ids_and_times_are_no_words():
    ids = {"event_id", "scope", "agent_id", "session_id", "turn_id", "timestamp", "messages"}
    assert set(MemoryEvent.model_fields) == ids | set(words_of(MemoryEvent))
    assert set(Message.model_fields) == {"role", *words_of(Message)}
    assert ask().session_id not in words_of(MemoryEvent)
