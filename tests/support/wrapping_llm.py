"""A model that wraps its JSON as real models do."""

import json
from collections.abc import Callable

from memory.testing import LoopbackAnswer, ScriptedLLM

WRAPS = {
    "thought": lambda text: '<think>\nthe user said {"x": [1]}\n</think>\n' + text,
    "fence": lambda text: f"```json\n{text}\n```",
    "byte order mark": lambda text: "\ufeff" + text,
    "prose": lambda text: f"Here {{it}} is:\n{text}\nI hope this helps!",
    "list": lambda text: json.dumps(next(iter(json.loads(text).values()))),
}


class WrappingLLM(ScriptedLLM):
    """Answers with the JSON that was asked for, wrapped as models do it."""

    wrap: Callable[[str], str]

    def respond(self, request):
        answer = super().respond(request)
        if answer is None or not request.path.endswith("chat/completions"):
            return answer
        data = json.loads(answer.data)
        message = data["choices"][0]["message"]
        message["content"] = self.wrap(message["content"])
        return LoopbackAnswer(200, data)
