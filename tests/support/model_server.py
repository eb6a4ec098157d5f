"""Servers that speak as the two model services do, on real sockets, with an answer for each request in turn."""

import json

from memory.testing import LoopbackAnswer, LoopbackRequest
from memory.testing._http_server import HttpServer


class ModelServer(HttpServer):
    """Gives its answers in turn and keeps what it was asked; ``models`` are always listed."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.asked: list[LoopbackRequest] = []

    def respond(self, request):
        if request.path.endswith("/models"):
            return LoopbackAnswer(200, {"object": "list", "data": [], "has_more": False})
        self.asked.append(request)
        return self.answers.pop(0)

    @property
    def body(self):
        """What was asked last."""
        return self.asked[-1].json


def events(items, *, cut=False):
    """Server-sent events, named by their ``type`` where they have one; ``cut`` ends the body without the last."""
    rows = list(items)
    lines = []
    for item in rows[:-1] if cut else rows:
        if isinstance(item, str):
            lines.append(f"data: {item}\n\n")
        else:
            name = f"event: {item['type']}\n" if "type" in item else ""
            lines.append(f"{name}data: {json.dumps(item)}\n\n")
    return LoopbackAnswer(200, "".join(lines).encode(), {"content-type": "text/event-stream"})


def chat(content=None, calls=None, finish="stop", **more):
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return LoopbackAnswer(
        200,
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice],
         "usage": usage, **more},
    )  # fmt: skip


def call(name, arguments, call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def delta(finish=None, **fields):
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice]}


def message(*blocks, stop="end_turn"):
    return {
        "id": "m", "type": "message", "role": "assistant", "model": "m-1", "content": list(blocks),
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 7, "output_tokens": 3},
    }  # fmt: skip


def text(said):
    return {"type": "text", "text": said}


def message_events(*pieces, stop="end_turn"):
    start = message() | {"stop_reason": None, "usage": {"input_tokens": 7, "output_tokens": 0}}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": text("")},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ]
