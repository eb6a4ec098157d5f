"""``memslot chat`` on a terminal: lines are edited, answers stream, and Ctrl-C ends it."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.thorough

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Terminal:
    """A chat on a pseudo-terminal, and what it shows."""

    def __init__(self, config, columns=80):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [sys.executable, "-c", "from memory.cli import main; main()", "chat", str(config)]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._terminal = ours
        self._raw = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while piece := os.read(self._terminal, 4096):
                self._raw += piece
                if b"\x1b[6n" in piece:  # where is the cursor?
                    os.write(self._terminal, b"\x1b[1;1R")
        except OSError:
            pass  # the other end is closed

    @property
    def shown(self):
        return _STYLES.sub("", self._raw.decode("utf-8", "replace"))

    def type(self, keys):
        os.write(self._terminal, keys.encode())

    def wait_for(self, text, after=0):
        """Until it shows a text behind a place; the place behind it."""
        until = time.monotonic() + 120
        while (found := self.shown.find(text, after)) < 0:
            assert time.monotonic() < until, self.shown[after:]
            assert self.process.poll() is None, self.shown[after:]
            time.sleep(0.02)
        return found + len(text)

    def ended(self):
        return self.process.wait(300)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def opened(tmp_path):
    terminals = []

    def open_(agent=None, columns=80):
        memory = {
            "backend": "full_history",
            "scope": {"run_id": "r", "persona_id": "ada"},
            "data_dir": "kept",
        }
        config = tmp_path / "chat.yaml"
        config.write_text(json.dumps({"memory": memory} | ({"agent": agent} if agent else {})))
        terminals.append(Terminal(config, columns))
        terminals[-1].wait_for(">")
        return terminals[-1]

    yield open_
    for terminal in terminals:
        terminal.close()


def test_a_conversation_in_a_narrow_window(opened):
    chat = opened(columns=30)
    for said, answered in (
        ("我最喜欢的茶是乌龙茶。", "Understood."),
        ("My favourite tea is oolong, and I drink it in the morning.", "Understood."),
        ("Which tea is my favourite?", "tea is oolong"),
        ("/memory", "recall took"),
        ("/forget", "is not understood"),
    ):
        place = len(chat.shown)
        chat.type(said + ENTER)
        chat.wait_for(">", chat.wait_for(answered, place))
    chat.type(CTRL_D)
    assert chat.ended() == 0
    assert "Traceback" not in chat.shown


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D])
def test_the_prompt_is_left_by_either_key(opened, key):
    chat = opened()
    chat.type(key)
    assert chat.ended() == 0


class Slow(BaseHTTPRequestHandler):
    """A model that never comes to an end."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            for number in range(2000):
                delta = {"index": 0, "delta": {"content": f"word{number} "}, "finish_reason": None}
                chunk = {
                    "id": "c",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "m",
                    "choices": [delta],
                }
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                time.sleep(0.05)
        except OSError:
            pass  # nobody listens any more

    def log_message(self, format, *values):
        pass


def test_an_interrupt_ends_the_chat_in_the_middle_of_an_answer(opened):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        chat = opened(
            {"provider": "openai_compatible", "options": {"model": "m", "base_url": url, "api_key": "x" * 20}}
        )
        chat.type(f"Tell me of my red bike.{ENTER}")
        chat.wait_for("word3")
        chat.type(CTRL_C)
        assert chat.ended() == 130
        assert "Traceback" not in chat.shown
    finally:
        server.shutdown()
        server.server_close()
