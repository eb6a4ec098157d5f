"""Conversations out of files: each kind, what is left out, and every problem with its place."""

import io
import json
import tracemalloc
import zipfile

import pytest

from memory.contract.errors import ConfigError
from memory.runtime import _transcript_items
from memory.runtime._transcripts import read_conversations


def _node(parent, role, parts, **message):
    said = {"author": {"role": role}, "content": {"content_type": "text", "parts": parts}, **message}
    return {"message": said, "parent": parent, "children": []}


CHATGPT = {
    "id": "talk-1",
    "current_node": "c",
    "mapping": {
        "root": {"message": None, "parent": None},
        "s": _node("root", "system", ["Be kind."]),
        "a": _node(
            "s", "user", ["I like oolong", {"asset_pointer": "file"}], create_time=1699900000.0, id="m1"
        ),
        "b": _node("a", "assistant", ["Which one?"]),
        "c": _node("a", "assistant", ["Noted."], create_time=1699900005.5),
    },
}
CLAUDE = {
    "uuid": "talk-1",
    "chat_messages": [
        {"uuid": "m1", "sender": "human", "text": "I like oolong", "created_at": "2026-01-01T10:00:00Z"},
        {
            "sender": "assistant",
            "text": "",
            "content": [{"type": "tool_use", "name": "x"}, {"type": "text", "text": "Noted."}],
            "attachments": [{}],
        },
    ],
}
SHAREGPT = {
    "id": "talk-1",
    "conversations": [{"from": "human", "value": "I like oolong"}, {"from": "gpt", "value": "Noted."}],
}
OPENAI = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "I like oolong"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": "Noted."},
    ]
}
CLAUDE_CODE = [
    {"type": "file-history-snapshot", "messageId": "x"},
    {"type": "user", "sessionId": "talk-1", "uuid": "m1", "timestamp": "2026-01-01T10:00:00.000Z",
     "message": {"role": "user", "content": "I like oolong"}},
    {"type": "assistant", "sessionId": "talk-1", "timestamp": "2026-01-01T10:00:05.000Z",
     "message": {"role": "assistant", "content": [{"type": "text", "text": "Noted."}, {"type": "tool_use"}]}},
]  # fmt: skip
LANGCHAIN = [
    {"type": "human", "data": {"content": "I like oolong", "id": "1"}},
    {"type": "ai", "data": {"content": "Noted.", "tool_calls": []}},
]
OWN = [
    {"session": "talk-1", "role": "user", "content": "I like oolong", "time": "2026-01-01T10:00:00Z"},
    {"session": "talk-1", "role": "assistant", "content": "Noted.", "time": 1767261605000},
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def said(found):
    return [(spoken.message.role, spoken.message.content) for spoken in found.messages]


@pytest.mark.parametrize(
    ("kind", "text", "left_out", "timed"),
    [
        ("chatgpt", json.dumps([CHATGPT]),
         {"messages of other branches": 1, "hidden messages": 1, "parts without text": 1}, 2),
        ("chatgpt", json.dumps(CHATGPT, indent=1),
         {"messages of other branches": 1, "hidden messages": 1, "parts without text": 1}, 2),
        ("claude", json.dumps([CLAUDE], indent=2), {"tool calls": 1, "attachments": 1}, 1),
        ("sharegpt", json.dumps([SHAREGPT]), {}, 0),
        ("sharegpt", lines([SHAREGPT]), {}, 0),
        ("sharegpt", json.dumps(SHAREGPT["conversations"]), {}, 0),
        ("openai", lines([OPENAI]), {"tool calls": 1, "tool messages": 1}, 0),
        ("openai", json.dumps(OPENAI["messages"]), {"tool calls": 1, "tool messages": 1}, 0),
        ("claude_code", lines(CLAUDE_CODE), {"tool calls": 1}, 2),
        ("langchain", json.dumps(LANGCHAIN), {}, 0),
        ("memslot", "\n" + lines(OWN), {}, 2),
    ],
)  # fmt: skip
def test_each_kind_is_found_and_read(tmp_path, kind, text, left_out, timed):
    (tmp_path / "chats.json").write_text("\ufeff" + text, encoding="utf-8")
    for named in (None, kind):
        (found,) = read_conversations(tmp_path / "chats.json", named)
        assert said(found) == [("user", "I like oolong"), ("assistant", "Noted.")]
        assert (found.kind, found.left_out) == (kind, left_out)
        assert sum(spoken.at is not None for spoken in found.messages) == timed


def test_memories_of_mem0_are_what_the_user_said(tmp_path):
    memory = {
        "id": "m1",
        "memory": "Likes oolong",
        "created_at": "2024-07-20T01:30:36.275141-07:00",
        "updated_at": None,
    }
    (tmp_path / "all.json").write_text(json.dumps({"results": [memory]}), encoding="utf-8")
    (found,) = read_conversations(tmp_path / "all.json")
    assert said(found) == [("user", "Likes oolong")]
    assert str(found.messages[0].at) == "2024-07-20 08:30:36.275141+00:00"


def test_an_export_is_read_as_zip_file(tmp_path):
    (tmp_path / "conversations.json").write_text(json.dumps([CHATGPT]), encoding="utf-8")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(tmp_path / "conversations.json", "export/conversations.json")
        archive.writestr("export/user.json", "{}")
    (tmp_path / "export.zip").write_bytes(packed.getvalue())
    found = [*read_conversations(tmp_path / "export.zip")]
    assert found == [*read_conversations(tmp_path / "conversations.json")]
    with pytest.raises(ConfigError, match="cannot be read"):
        [*read_conversations(tmp_path)]


def test_a_large_list_is_read_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(_transcript_items, "_CHUNK", 7)
    many = [{**SHAREGPT, "id": f"talk-{number}"} for number in range(30)]
    (tmp_path / "chats.json").write_text(json.dumps(many, indent=1, ensure_ascii=False), encoding="utf-8")
    left = read_conversations(tmp_path / "chats.json")
    assert next(left).conversation_id == "talk-0"
    assert sum(1 for _ in left) == 29


def test_a_large_list_on_one_line_is_never_held_whole(tmp_path):
    many = [{**SHAREGPT, "id": f"talk-{number}", "about": "x" * 100_000} for number in range(100)]
    (tmp_path / "chats.json").write_text(json.dumps(many), encoding="utf-8")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_conversations(tmp_path / "chats.json")) == 100
        assert tracemalloc.get_traced_memory()[1] < 5_000_000, "the file has 10 MB"
    finally:
        tracemalloc.stop()


def test_every_problem_of_a_file_is_listed_with_its_line(tmp_path):
    good = {"session": "s", "role": "user", "content": "hello"}
    rows = [
        json.dumps(good),
        "{broken}",
        json.dumps({**good, "role": "robot"}),
        json.dumps({"role": "user", "session": None, "content": "x"}),
        json.dumps({**good, "content": " "}),
        json.dumps({**good, "time": "yesterday"}),
        json.dumps({**good, "time": "2026-01-01T10:00:00"}),
        json.dumps({**good, "contnt": "x"}),
        json.dumps({"question": ""}),
        json.dumps({"question": "Which?", "answer": " "}),
        json.dumps({"question": "Which?", "evidence": 7}),
        '{"question": "Which?", "answer": NaN}',
        json.dumps({**good, "content": "\ud800"}),
        json.dumps({"question": "Which?", "answer": 7, "evidence": "s:1"}),
        "[" * 100_000,
        '{"question": ' + "9" * 5000 + "}",
        "null",
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(rows), encoding="utf-8")
    problems, questions = [], []
    (found,) = read_conversations(tmp_path / "chats.jsonl", problems=problems, questions=questions)
    assert said(found) == [("user", "hello")]
    places = [problem.place for problem in problems]
    assert places == [f"chats.jsonl, line {number}" for number in (*range(2, 14), 15, 16, 17)]
    assert all(word in str(problem) for problem, word in zip(problems, [
        "JSON", "role", "session", "content", "time", "zone", "contnt", "question", "answer", "evidence", "NaN",
        "surrogate", "deep", "number", "object"], strict=True))  # fmt: skip
    assert [(question.answer, question.evidence) for question in questions] == [("7", ("s:1",))]
    with pytest.raises(ConfigError, match="line 2"):
        [*read_conversations(tmp_path / "chats.jsonl")]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"user,text\n", "neither JSON nor JSON lines"),
        (b"\xff\xfe{", "is not UTF-8"),
        (b'{"a": 1}', "of no known kind"),
        (b"[]", None),
        (b'[{"id": "x", "conversations": []}]', "holds no message"),
        (b'[{"id": "x", "conversations": [{"from": "human", "value": "a"}]}', "item 2 .line 1.: ends within"),
        (
            b'[\n{"conversations": [{"from": "human", "value": "a"}]},\n{"x": }]',
            "item 2 .line 3.: is not JSON",
        ),
        (b'{"mapping": []}', "mapping must be an object"),
        (b'{"mapping": {"a": {"parent": "a", "message": null}}}', "holds no message"),
        (b'{"id":"x","conversations":[{"from":"human","value":"a"}]}\n' * 2, "occurs twice"),
        (b"PK\x03\x04", "neither JSON"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, content, why):
    (tmp_path / "chats.json").write_bytes(content)
    if why is None:
        assert [*read_conversations(tmp_path / "chats.json")] == []
        return
    with pytest.raises(ConfigError, match=why):
        [*read_conversations(tmp_path / "chats.json")]


def test_a_missing_file_and_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        [*read_conversations(tmp_path / "none.json")]
    with pytest.raises(ConfigError, match="kind is 'gpt'"):
        [*read_conversations(tmp_path, "gpt")]


@pytest.mark.parametrize(
    ("rows", "texts", "left_out", "wrong"),
    [
        pytest.param(
            [{**OPENAI, "messages": [{"role": "robot", "content": "x"}, 7, *OPENAI["messages"]]}],
            ["I like oolong", "Noted."],
            {"tool calls": 1, "tool messages": 1},
            ["messages[1]: role must be one of", "messages[2]: must be an object"],
            id="a damaged message costs no other",
        ),
        pytest.param(
            [
                {
                    **CLAUDE,
                    "chat_messages": [{"sender": "human", "text": "hi", "created_at": "2026-01-01T10:00:00"}],
                }
            ],
            ["hi"],
            {"times without a zone, or unreadable": 1},
            [],
            id="a time without a zone is no time",
        ),
        pytest.param(
            [OPENAI, {**CLAUDE, "attachments": None}, CHATGPT, 5],
            ["I like oolong", "Noted."] * 3,
            None,
            ["item 4 (line 1): must be an object"],
            id="mixed kinds",
        ),
        pytest.param(
            [SHAREGPT, {**SHAREGPT, "conversations": [{"from": "human", "value": "other"}]}, SHAREGPT],
            ["I like oolong", "Noted.", "other"],
            {},
            ["item 3 (line 1): the conversation occurs twice"],
            id="one name for two conversations",
        ),
        pytest.param(
            [{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, OPENAI],
            ["I like oolong", "Noted."],
            {"tool calls": 1, "tool messages": 1},
            ["item 1 (line 1): holds no message of a user or an assistant"],
            id="images alone",
        ),
    ],
)
def test_what_is_readable_is_read_and_the_rest_listed_with_its_place(tmp_path, rows, texts, left_out, wrong):
    (tmp_path / "chats.json").write_text(json.dumps(rows), encoding="utf-8")
    problems = []
    found = [*read_conversations(tmp_path / "chats.json", problems=problems)]
    assert [text for each in found for _, text in said(each)] == texts
    assert left_out is None or [each.left_out for each in found] == [left_out] * len(found)
    assert len({each.conversation_id for each in found}) == len(found)
    assert [part in str(problem) for part, problem in zip(wrong, problems, strict=True)] == [True] * len(
        wrong
    )


def test_a_damaged_zip_file_is_one_line(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT] * 50))
    content = bytearray(packed.getvalue())
    content[60:90] = b"x" * 30
    (tmp_path / "export.zip").write_bytes(content)
    with pytest.raises(ConfigError, match=r"export.zip is a damaged zip file; fetch it again"):
        [*read_conversations(tmp_path / "export.zip", problems=[])]
