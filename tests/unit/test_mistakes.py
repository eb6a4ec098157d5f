"""Thirty-six typical mistakes of the first hour: each answer is one line that names the place and the fix."""

from pathlib import Path

import anyio
import pytest
from cli_support import FULL_HISTORY, error_line, invoke

from memory import ConfigError, InputError, MemoryScope, MemslotError, Message, open_memory

LONG = f"memory: {{backend: full_history, scope: {{run_id: {'x' * 513}, persona_id: p}}}}"
# What the file says; the line of the mistake; what the answer says as well.
IN_A_FILE = {
    "misspelt backend": ("memory:\n  backend: mem00\n", 2, ["memory.backend", "did you mean mem0"]),
    "backend as condition": ("memory:\n  condition: mem0\n", 2, ["mem0 is a backend", "write backend: mem0"]),
    "two memories": ("memory:\n  backend: mem0\n  condition: no_memory\n", 1, ["(mem0)", "(no_memory)"]),
    "no memory chosen": ("memory: {}", 1, ["selects nothing", "memslot doctor"]),
    "no memory section": ("run: {}", 0, ["memory"]),
    "missing option": (
        "memory:\n  backend: mirror\n  backends: {mirror: {primary: full_history}}\n",
        3,
        ["memory.backends.mirror.shadows", "is required, e.g."],
    ),
    "misspelt option": (
        "memory:\n  condition: full_history\n  conditions:\n    full_history:\n      durabilty: x\n",
        5,
        ["full_history.durabilty", "did you mean durability?"],
    ),
    "misspelt section": ("memroy: {}", 1, ["memroy", "did you mean memory?"]),
    "variable not set": (
        "memory:\n  condition: full_history\n  conditions:\n    full_history:\n      durability: ${NOT_SET}\n",
        5,
        ["full_history.durability", "NOT_SET"],
    ),
    "broken YAML": ("memory:\n  backend: [mem0\n", 3, ["not valid YAML"]),
    "tabs": ("memory:\n\tbackend: mem0\n", 2, ["not valid YAML", "indent with blanks"]),
    "key twice": ("memory:\n  backend: mem0\n  backend: mem0\n", 3, ["stands twice"]),
    "a list": ("- memory", 0, ["must be a mapping"]),
    "an empty file": ("", 0, ["must be a mapping"]),
    "wildcard as id": (
        "memory:\n  backend: full_history\n  scope: {run_id: '*', persona_id: p}\n",
        3,
        ["memory.scope", "run_id", "wildcard"],
    ),
    "long id": (LONG, 1, ["memory.scope", "run_id", "512"]),
    "no person": ("memory:\n  backend: full_history\n  scope: {run_id: r}\n", 3, ["persona_id"]),
    "budget upside down": (
        "memory:\n  backend: full_history\n  budget: {max_tokens: 5, min_tokens: 6}\n",
        3,
        ["memory.budget", "min_tokens"],
    ),
    "negative budget": (
        "memory:\n  backend: full_history\n  budget: {max_tokens: -1}\n",
        3,
        ["memory.budget.max_tokens"],
    ),
    "misspelt timeline": (f"{FULL_HISTORY}\nrun: {{timeline: quickstrat}}\n", 2, ["run.timeline"]),
    "misspelt run option": (f"{FULL_HISTORY}\nrun: {{timelin: game}}\n", 2, ["did you mean timeline?"]),
    "no data": (f"{FULL_HISTORY}\nrun: {{timeline: locomo}}\n", 2, ["locomo needs data"]),
    "data not there": (
        f"{FULL_HISTORY}\nrun: {{timeline: locomo, data: nowhere.json}}\n",
        2,
        ["nowhere.json does not exist"],
    ),
}
ON_THE_COMMAND_LINE = {
    "file not there": (["run", "gone.yaml"], "no such file; 'memslot setup' writes one"),
    "misspelt command": (["rnu"], "No such command 'rnu'"),
    "no file named": (["run"], "Missing argument 'CONFIG'; see 'memslot run --help'"),
    "unknown option": (["doctor", "--loud"], "No such option: --loud"),
    "not a number": (["run", "x.yaml", "--limit", "none"], "Invalid value for '--limit'"),
    "option of before": (["report", "x", "--as", "csv"], "No such option: --as"),
    "former name": (["compare", "x.yaml"], "memslot compare: is now 'memslot run'"),
    "no file to import": (["import", "gone.json", "--into", "good.yaml"], "gone.json does not exist"),
    "unknown kind": (["import", "good.yaml", "--into", "good.yaml", "--as", "gpt"], "--as gpt: is one of"),
}


async def with_open_memory():
    with open_memory({"memory": {"backend": "full_history"}}):
        pass


async def nobody_named():
    async with open_memory({"memory": {"backend": "full_history"}}) as memory:
        await memory.before_turn("Which tea?", session_id="s")


IN_CODE = {
    "with, not async with": (with_open_memory, "open_memory_sync"),
    "no scope": (nobody_named, "scope"),
    "blank id": (lambda: MemoryScope(run_id=" ", persona_id="p"), "run_id"),
    "no role": (lambda: Message.from_any({"content": "hello"}), "role"),
}


def test_there_are_thirty_six():
    assert len(IN_A_FILE) + len(ON_THE_COMMAND_LINE) + len(IN_CODE) == 36


@pytest.mark.parametrize(("text", "line", "said"), IN_A_FILE.values(), ids=IN_A_FILE.keys())
def test_a_mistake_in_a_file(tmp_path, text, line, said):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    answer = error_line(invoke("run", path, "--out", tmp_path / "runs"), 2)
    assert answer.startswith(f"{path}:{line}:" if line else f"{path}: ")
    assert [part for part in said if part not in answer] == [], answer
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path], "nothing is written"


@pytest.mark.parametrize(("arguments", "said"), ON_THE_COMMAND_LINE.values(), ids=ON_THE_COMMAND_LINE.keys())
def test_a_mistake_on_the_command_line(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(
        "memory: {backend: full_history, scope: {run_id: r, persona_id: p}}", encoding="utf-8"
    )
    assert said in error_line(invoke(*arguments), 2)


@pytest.mark.parametrize(("mistake", "said"), IN_CODE.values(), ids=IN_CODE.keys())
def test_a_mistake_in_code(mistake, said):
    with pytest.raises((ConfigError, InputError, MemslotError, TypeError)) as refused:
        anyio.run(mistake) if mistake.__name__ != "<lambda>" else mistake()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
