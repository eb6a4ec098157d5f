"""MemOS 2.0's readers and feedback: memories, preferences, tool use and skills from the prompt's messages."""

import json
import re
from dataclasses import dataclass

from memory.adapter._scripted_text import content_words, is_statement, lexical_overlap, sentences

_TURN = re.compile(r"^(?:\d+: )?(user|assistant|system|tool): (?:\[[^\]]*\]: )?", re.M)
_LIKES = re.compile(
    r"\b(?:like|love|prefer|enjoy|hate|dislike|favou?rite|avoid|never|always)\w*\b|喜欢|偏好|讨厌", re.I
)
_TOOL_NAME = re.compile(r"[\"']name[\"']: ?[\"']([^\"']+)[\"']")
_REPLACEMENT = re.compile(
    r"\b(?:replace|change) ['\"](.{1,500}?)['\"] (?:with|to) ['\"](.{1,500}?)['\"]", re.I
)
_NATIVE_ID = re.compile(r"^([0-9a-f]{8}-[0-9a-f-]{27}): ", re.M)
_SAME_MATTER = 0.3  # of the new fact's words in a known memory: then it is about the same thing


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    text: str

    @property
    def statements(self):
        return [sentence for sentence in sentences(self.text) if is_statement(sentence, self.role)]


def _between(prompt, start, *ends):
    """The text from the last ``start`` to the first of ``ends`` after it."""
    text = prompt.rpartition(start)[2]
    for end in ends:
        text = text.partition(end)[0]
    return text.strip()


def _turns(text):
    pieces = _TURN.split(text)[1:]
    for role, said in zip(pieces[::2], pieces[1::2], strict=True):
        yield _Turn(role, said.strip())


def _read_chat(request):
    prompt = request.last_user
    if '"memory list"' not in prompt:
        return None
    start = "\nConversation:\n" if "\nConversation:\n" in prompt else "\n对话：\n"
    turns = list(_turns(_between(prompt, start, "\n\nYour Output", "\n\n您的输出")))
    found = [
        {
            "key": " ".join(content_words(sentence)[:4]),
            "memory_type": "UserMemory" if turn.role == "user" else "LongTermMemory",
            "value": sentence,
            "tags": content_words(sentence)[:3],
        }
        for turn in turns
        for sentence in turn.statements
    ]
    return {"memory list": found, "summary": " ".join(str(memory["value"]) for memory in found)}


def _read_preferences(request):
    prompt = request.last_user
    if '"implicit_preference"' in prompt:
        return "[]"
    if '"explicit_preference"' not in prompt:
        return None
    start = "\nInput:\n" if "\nInput:\n" in prompt else "\n输入：\n"
    found = [
        {
            "explicit_preference": sentence,
            "context_summary": sentence,
            "reasoning": "stated",
            "topic": content_words(sentence)[-1],
        }
        for turn in _turns(_between(prompt, start, "\n\nFind ALL", "\n\n找出所有"))
        for sentence in turn.statements
        if turn.role == "user" and _LIKES.search(sentence)
    ]
    return _json_list(found)


def _read_tool_use(request):
    prompt = request.last_user
    if '"tool_used_status"' not in prompt:
        return None
    use = _tool_use(_between(prompt, "<messages>\n", "\n</messages>"))
    return _json_list(
        [
            {
                "correctness": "success" if use.worked else "failed",
                "trajectory": use.trajectory,
                "experience": f"when asked to {use.task}, then use {', '.join(use.tools)}",
                "tool_used_status": [
                    {
                        "used_tool": name,
                        "success_rate": "1.0" if use.worked else "0.0",
                        "error_type": "" if use.worked else use.result,
                        "tool_experience": use.result,
                    }
                    for name in use.tools
                ],
            }
        ]
    )


@dataclass(frozen=True, slots=True)
class _ToolUse:
    task: str
    tools: list[str]
    result: str

    @property
    def worked(self):
        return "error" not in self.result.lower()

    @property
    def trajectory(self):
        return f"{self.task} -> {', '.join(self.tools)} -> {self.result}"


def _tool_use(conversation):
    turns = list(_turns(conversation))
    task = next((turn.text for turn in turns if turn.role == "user"), "")
    result = next((turn.text for turn in reversed(turns) if turn.role == "tool"), "")
    return _ToolUse(task, list(dict.fromkeys(_TOOL_NAME.findall(conversation))), result)


def _split_tasks(request):
    prompt = request.last_user
    if '"message_indices"' not in prompt:
        return None
    last = len(list(_turns(prompt.partition("\n# Role\n")[0]))) - 1
    return _json_list(
        [{"task_id": 1, "task_name": "Tool use", "message_indices": [[0, last]], "reasoning": "one"}]
    )


def _name_task(request):
    if "# Task Type\n" not in request.last_user:
        return None
    return _tool_use(_between(request.last_user, "# Conversation Messages\n", "\n\n# Requirements")).task


def _read_skill(request):
    prompt = request.last_user
    if '"old_memory_id"' not in prompt:
        return None
    use = _tool_use(_between(prompt, "## Conversation Messages\n", "\n\n# Skill Extraction"))
    return {
        "name": " ".join(content_words(use.task)[:3]),
        "description": f"How to {use.task}",
        "trigger": content_words(use.task)[:3],
        "procedure": use.trajectory,
        "experience": [use.result],
        "preference": [],
        "examples": [],
        "update": False,
        "old_memory_id": "",
    }


def _replace_words(request):
    if '"if_keyword_replace"' not in request.last_user:
        return None
    wanted = _REPLACEMENT.search(_between(request.last_user, "**User Input**\n", "\n\n**Output**"))
    if wanted is None:
        return {"if_keyword_replace": "false", "doc_scope": None, "original": None, "target": None}
    original, target = wanted.groups()
    return {"if_keyword_replace": "true", "doc_scope": "NONE", "original": original, "target": target}


def _judge_feedback(request):
    prompt = request.last_user
    if '"corrected_info"' not in prompt:
        return None
    history = _between(prompt, "Dialogue History:\n", "\n\nfeedback time:")
    said = _between(prompt, "User Feedback:\n", "\n\nOutput:")
    stated = " ".join(_Turn("user", said).statements)
    related = lexical_overlap(said, history) > 0
    return _json_list(
        [
            {
                "validity": "true" if related else "false",
                "user_attitude": "irrelevant" if not related else "dissatisfied" if stated else "satisfied",
                "corrected_info": stated,
                "key": " ".join(content_words(stated)[:4]),
                "tags": content_words(stated)[:3],
            }
        ]
    )


def _compare_with_known(request):
    prompt = request.last_user
    if '"operations"' not in prompt or "**Newly facts**" not in prompt:
        return None
    fact = _between(prompt, "**Newly facts**\n", "\n\nOperation")
    pieces = _NATIVE_ID.split(_between(prompt, "**Current Memories**\n", "\n\n**The background"))[1:]
    operations = []
    for native_id, memory in zip(pieces[::2], map(str.strip, pieces[1::2]), strict=True):
        same_matter = memory != fact and lexical_overlap(fact, memory) >= _SAME_MATTER
        operation = {"id": native_id, "text": memory, "operation": "NONE"}
        if same_matter:
            operation = {"id": native_id, "text": fact, "operation": "UPDATE", "old_memory": memory}
        operations.append(operation)
    if all(operation["operation"] == "NONE" and operation["text"] != fact for operation in operations):
        operations.append({"id": "0001", "text": fact, "operation": "ADD"})
    return {"operations": operations}


def _parse_goal(request):
    if '"rephrased_instruction"' not in request.last_user:
        return None
    task = _between(request.last_user, "(User Question):\n", "\n\nContext").strip('"')
    return {"keys": [], "tags": [], "goal_type": "retrieval", "rephrased_instruction": "", "memories": [task]}


def _enhance(request):
    prompt = request.last_user
    if "## Original Memories\n" not in prompt or "<answer>" not in prompt:
        return None
    query = _between(prompt, "## User Query\n", "\n\n## Original Memories")
    known = _between(prompt, "## Original Memories\n", "\n\nFinal Output").split("\n")
    kept = [line for line in known if lexical_overlap(query, line) > 0]
    return "\n".join(["<answer>", *kept, "</answer>"])


def _json_list(items):
    return json.dumps(list(items), ensure_ascii=False)


rules = (
    _read_chat,
    _read_preferences,
    _read_tool_use,
    _split_tasks,
    _name_task,
    _read_skill,
    _replace_words,
    _judge_feedback,
    _compare_with_known,
    _parse_goal,
    _enhance,
)
