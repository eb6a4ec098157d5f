"""Runs the MemOS product server of the installed package, offline, on the loopback.

    python tests/live/memos_server.py PORT

MemOS takes everything else from its environment. Started by :mod:`memos_rig`.
"""

import sys

import uvicorn
from chonkie import tokenizer

# MemOS hard-codes "gpt2" for chunking, which would be fetched from a model hub at the start.
tokenizer._chonkie_tokenizer_classes["gpt2"] = tokenizer.CharacterTokenizer

if __name__ == "__main__":
    uvicorn.run("memos.api.server_api:app", host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
