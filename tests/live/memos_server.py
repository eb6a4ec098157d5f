"""Runs the MemOS product server of the installed package, offline, on the loopback.

    python tests/live/memos_server.py <file that gets the port> <port, or 0 for a free one>

MemOS takes everything else from its environment. Started by :mod:`memos_rig`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from chonkie import tokenizer

# MemOS hard-codes "gpt2" for chunking, which would be fetched from a model hub at the start.
tokenizer._chonkie_tokenizer_classes["gpt2"] = tokenizer.CharacterTokenizer


def main(port_file: Path, port: int) -> None:
    config = uvicorn.Config("memos.api.server_api:app", host="127.0.0.1", port=port, log_level="warning")
    listening = config.bind_socket()
    port_file.write_text(str(listening.getsockname()[1]))
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
