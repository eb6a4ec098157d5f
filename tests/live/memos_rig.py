"""A real MemOS product server of the installed package ``MemoryOS``."""

import contextlib
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "backends" / "memos"))

from rig import Server, free_port
from scripted_rules_memos import rules as rules

_DIMENSIONS = 256


def missing(*, redis=False):
    """What of the rig's needs is not installed, or an empty string."""
    needed = ("memos", "pgserver", "psycopg2", "jieba", "chonkie", "uvicorn")
    absent = [name for name in needed if find_spec(name) is None]
    if redis and shutil.which("redis-server") is None:
        absent.append("redis-server")
    return f"not installed: {', '.join(absent)}; run make live-memos" if absent else ""


@contextlib.contextmanager
def server(directory, llm_url, database, *, redis=False):
    """The server, ready to start; its Redis, if it has one, runs."""
    # MemOS builds its approximate index on the empty table; with the default it then finds nothing.
    database.psql("ALTER DATABASE postgres SET ivfflat.probes = 100")
    (directory / "files").mkdir()
    port = free_port()
    settings = {
        **_models(llm_url),
        "GRAPH_DB_BACKEND": "postgres",
        "POSTGRES_HOST": str(database.get_postmaster_info().socket_dir),
        "POSTGRES_PORT": "5432",
        "POSTGRES_USER": "postgres",
        "POSTGRES_DB": "postgres",
        "POSTGRES_MAX_CONN": "60",
        "MEMOS_BASE_PATH": str(directory),
        "FILE_LOCAL_PATH": str(directory / "files"),
        "TMPDIR": str(directory),
        "MEMSCHEDULER_USE_REDIS_QUEUE": str(redis).lower(),
    }
    commands = {"api": [sys.executable, str(Path(__file__).with_name("memos_server.py")), str(port)]}
    url = f"http://127.0.0.1:{port}"
    if not redis:
        yield Server(url, settings, commands, directory)
        return
    redis_port = free_port()
    settings |= {"MEMSCHEDULER_REDIS_HOST": "127.0.0.1", "MEMSCHEDULER_REDIS_PORT": str(redis_port)}
    queue = Server("", {}, {}, directory)
    where = ["--port", str(redis_port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    queue.children["redis"] = queue.child("redis", ["redis-server", *where])
    try:
        yield Server(url, settings, commands, directory)
    finally:
        queue.stop()


def _models(url):
    key = "unused"
    return {
        "OPENAI_API_KEY": key,
        "OPENAI_API_BASE": url,
        "MOS_CHAT_MODEL": "scripted",
        "MEMRADER_API_KEY": key,
        "MEMRADER_API_BASE": url,
        "MEMRADER_MODEL": "scripted",
        "MOS_EMBEDDER_BACKEND": "universal_api",
        "MOS_EMBEDDER_PROVIDER": "openai",
        "MOS_EMBEDDER_API_BASE": url,
        "MOS_EMBEDDER_API_KEY": key,
        "MOS_EMBEDDER_MODEL": "scripted-embedding",
        "EMBEDDING_DIMENSION": str(_DIMENSIONS),
        "MOS_RERANKER_BACKEND": "http_bge",
        "MOS_FEEDBACK_RERANKER_BACKEND": "http_bge",
        "MOS_RERANKER_URL": f"{url}/rerank",
        "ENABLE_INTERNET": "false",
        "ENABLE_PREFERENCE_MEMORY": "true",
        "MOS_ENABLE_REORGANIZE": "false",
        "HF_HUB_OFFLINE": "1",
    }
