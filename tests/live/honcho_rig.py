"""A real Honcho server and its worker, from a checkout that ``HONCHO_SOURCE`` names.

``HONCHO_PYTHON`` has the server's dependencies; the default is the checkout's own ``.venv/bin/python``. The server
counts tokens with tiktoken, which downloads its ranks: offline, let ``TIKTOKEN_CACHE_DIR`` name a copy.
"""

import contextlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "backends" / "honcho"))

from rig import Server, free_port
from scripted_rules_honcho import rules as rules

SOURCE = os.environ.get("HONCHO_SOURCE", "")
_MODELS = ("DERIVER", "SUMMARY", "DREAM_DEDUCTION", "DREAM_INDUCTION")
_LEVELS = ("minimal", "low", "medium", "high", "max")


def missing():
    """Why no server can be started; an empty string where one can."""
    if not SOURCE:
        return "HONCHO_SOURCE names no checkout of a Honcho server"
    return "" if find_spec("pgserver") else "not installed: pgserver"


@contextlib.contextmanager
def server(directory, llm_url, database, *, redis=False):
    """Tables made; API and worker ready to start."""
    python = os.environ.get("HONCHO_PYTHON", f"{SOURCE}/.venv/bin/python")
    port = free_port()
    settings = _settings(llm_url, database.get_uri())
    subprocess.run(
        [python, "scripts/provision_db.py"],
        cwd=SOURCE,
        env={"PATH": os.environ["PATH"], **settings},
        check=True,
        stdout=sys.stderr,
    )
    api = ["-m", "uvicorn", "src.main:app", "--host", "127.0.0.1", "--port", str(port)]
    commands = {"api": [python, *api], "worker": [python, "-m", "src.deriver"]}
    yield Server(f"http://127.0.0.1:{port}", settings, commands, directory)


def _settings(llm_url, database):
    prefixes = [f"{name}_MODEL_CONFIG" for name in _MODELS]
    prefixes += [f"DIALECTIC_LEVELS__{level}__MODEL_CONFIG" for level in _LEVELS]
    models = {f"{prefix}__MODEL": "scripted" for prefix in prefixes}
    prefixes.append("EMBEDDING_MODEL_CONFIG")
    cache = os.environ.get("TIKTOKEN_CACHE_DIR")
    return {
        "PYTHONPATH": SOURCE,
        **({"TIKTOKEN_CACHE_DIR": cache} if cache else {}),
        "DB_CONNECTION_URI": database.replace("postgresql://", "postgresql+psycopg://"),
        "AUTH_USE_AUTH": "false",
        "LLM_OPENAI_API_KEY": "unused",
        "EMBEDDING_MODEL_CONFIG__MODEL": "text-embedding-3-small",
        **models,
        **{f"{prefix}__TRANSPORT": "openai" for prefix in prefixes},
        **{f"{prefix}__OVERRIDES__BASE_URL": llm_url for prefix in prefixes},
        "DERIVER_FLUSH_ENABLED": "true",
        "DERIVER_POLLING_SLEEP_INTERVAL_SECONDS": "0.2",
        "DERIVER_POLLING_BACKOFF_ENABLED": "false",
        "DERIVER_POLLING_STARTUP_JITTER_SECONDS": "0",
        "DREAM_ENABLED": "false",
        "SENTRY_ENABLED": "false",
    }
