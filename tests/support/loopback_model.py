"""A language model of a host that runs in a process of its own: it answers from what it is shown."""

import json
from typing import Any

from memory.testing import LoopbackAnswer
from memory.testing._http_server import HttpServer


class Model(HttpServer):
    """OpenAI-compatible, streaming or not. Knows of oolong where a memory section in the prompt says so."""

    def __init__(self):
        super().__init__()
        self.asked: list[list[dict[str, Any]]] = []
        self.tools: list[set[str]] = []

    def respond(self, request):
        body = request.json
        if not body or "messages" not in body:  # it asks which models there are
            return None
        self.asked.append(body["messages"])
        self.tools.append({tool["function"]["name"] for tool in body.get("tools", ())})
        message = {"role": "assistant", **self.message_to(body)}
        end = "tool_calls" if message.get("tool_calls") else "stop"
        head = {"id": "c", "created": 1, "model": "scripted"}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": end}
            return LoopbackAnswer(200, {**head, "object": "chat.completion", "choices": [choice]})
        chunks = [{"index": 0, "delta": message}, {"index": 0, "delta": {}, "finish_reason": end}]
        lines = [
            json.dumps({**head, "object": "chat.completion.chunk", "choices": [choice]}) for choice in chunks
        ]
        sse = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
        return LoopbackAnswer(200, sse.encode(), {"content-type": "text/event-stream"})

    def hear(self, body, said):
        """Keep what a request of another protocol says, and the names of its tools."""
        self.asked.append(said)
        self.tools.append({str(tool.get("name")) for tool in body.get("tools", ())})

    def message_to(self, body):
        """What it says to one request, in the protocol's words."""
        return {"content": self.answer_to(body)}

    def answer_to(self, body):
        """What it says to one request."""
        return "You like oolong." if "oolong" in self.sections[-1] else f"Noted, {len(self.asked)}."

    @property
    def prompts(self):
        """What each request held, all messages as one text."""
        return [json.dumps(messages) for messages in self.asked]

    @property
    def sections(self):
        """The memory section of each request's last message; empty where there is none."""
        ends = [json.dumps(messages[-1].get("content")) for messages in self.asked]
        return [end[end.index("<memory-context") :] if "<memory-context" in end else "" for end in ends]


def as_events(events):
    """An answer that streams events, each under the name of its type."""
    sse = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return LoopbackAnswer(200, sse.encode(), {"content-type": "text/event-stream"})
