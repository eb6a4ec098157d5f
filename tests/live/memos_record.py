"""Records the pairs of ``tests/backends/memos/pairs`` anew, from a real server of our own.

    python tests/live/memos_record.py [name ...]

The requests are in the files already; their answers are written into them. To add a history, write its requests.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import httpx

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "backends" / "memos")]

from memos_pairs import PAIRS, load, replay  # noqa: E402
from rig import Rig  # noqa: E402


class Asker:
    """Asks a real server, breaks what is behind it, waits for its scheduler."""

    def __init__(self, rig):
        self._rig = rig

    def __call__(self, step):
        request = step["request"]
        with contextlib.ExitStack() as stack:
            if "llm" in step:
                stack.enter_context(self._rig.llm_fault(**step["llm"]))
            if step.get("no_database"):
                stack.enter_context(self._rig.no_database())
            client = stack.enter_context(httpx.Client(base_url=self._rig.url, timeout=60))
            if step.get("idle"):
                _wait_until_idle(client)
            answer = client.request(
                request["method"], request["path"], json=request.get("json"), params=request.get("params")
            )
            if step.get("settle"):
                _wait_until_idle(client)
            return answer.status_code, answer.json()


def _wait_until_idle(client):
    for _ in range(200):
        summaries = client.get("/product/scheduler/allstatus").json()["data"].values()
        if not any(summary["waiting"] + summary["in_progress"] for summary in summaries):
            return
        time.sleep(0.05)
    raise TimeoutError("the scheduler is not done after 10 s")


def record(paths, rig):
    for path in paths:
        history = load(path)
        run = f"pairs-{os.urandom(4).hex()}"
        history["steps"] = [
            {**step, "status": status, "body": body}
            for step, status, body in replay(history, run, Asker(rig))
        ]
        path.write_text(json.dumps(history, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        yield path


def main(names):
    wanted = [path for path in PAIRS if not names or path.stem in names]
    for redis in (False, True):
        paths = [path for path in wanted if load(path).get("redis", False) == redis]
        if paths:
            rig = Rig("redis" if redis else "memos")
            for path in record(paths, rig):
                sys.stdout.write(f"{path.stem}\n")
            rig.close()


if __name__ == "__main__":
    main(sys.argv[1:])
