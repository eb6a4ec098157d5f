"""Prints what three ``memslot serve`` over one PostgreSQL carry, beside one.

python tests/perf/many_servers_figures.py [seconds]     how long to load each, 10 by default
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import aiohttp
import psutil
from embedded_stores import postgres
from figures import finish, show
from many_servers import TOKEN, Servers, served
from postgres import ask

CLIENTS = 24


def cpu_of_postgres(url: str) -> float:
    """Seconds that the server's processes have taken, those that ended before included."""
    found = ask(url, "SHOW data_directory")[0][0]
    main = psutil.Process(int((Path(found) / "postmaster.pid").read_text().splitlines()[0]))
    spent = main.cpu_times()
    whole = spent.user + spent.system + spent.children_user + spent.children_system
    for child in main.children():
        times = child.cpu_times()
        whole += times.user + times.system
    return whole


async def load(urls: list[str], seconds: float = 0, *, rounds: int = 0) -> int:
    """Prompts of a session for each client, each sent as the last is answered, to one server after another.

    ``rounds``: how many of each client each server gets at least.
    """
    answered, until = 0, time.monotonic() + seconds
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def speak(http: aiohttp.ClientSession, client: int) -> None:
        nonlocal answered
        number = client
        while time.monotonic() < until or number < client + rounds * len(urls):
            number += 1
            body = {"harness": "t", "sessionKey": f"s{client}", "project": f"/p{client}"}
            body["userMessage"] = f"fact number {number} of subject {number % 7}"
            at = f"{urls[number % len(urls)]}/api/hooks/user-prompt-submit"
            async with http.post(at, json=body, headers=headers) as done:
                assert done.status == 200, await done.text()
            answered += 1

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(speak(http, client) for client in range(CLIENTS)))
    return answered


def carried(servers: Servers, url: str, seconds: float) -> tuple[float, float, float]:
    """Prompts a second, and CPU ms a prompt of the servers and of PostgreSQL, until all of them are delivered."""
    asyncio.run(load(servers.urls, rounds=2))  # every server sets every scope up
    before, of_state, began = servers.cpu_s(), cpu_of_postgres(url), time.monotonic()
    prompts = asyncio.run(load(servers.urls, seconds))
    took_s = time.monotonic() - began
    waits = "SELECT count(*) FROM memslot.outbox WHERE state IN ('waiting', 'unknown')"
    while ask(url, waits) != [(0,)]:
        time.sleep(0.1)
    cpu, state = servers.cpu_s() - before, cpu_of_postgres(url) - of_state
    return prompts / took_s, cpu / prompts * 1000, state / prompts * 1000


def main(seconds: float) -> None:
    """One server, then three."""
    found = {}
    for count in (1, 3):
        with postgres() as url, tempfile.TemporaryDirectory() as place:
            ask(url, "CREATE EXTENSION IF NOT EXISTS vector")
            with served(Path(place), url, count=count) as servers:
                found[count] = carried(servers, url, seconds)
        a_second, cpu_ms, state_ms = found[count]
        show(f"{count} servers, mem0 on pgvector: prompts a second", f"{a_second:.0f}")
        show(
            f"{count} servers: CPU of them a prompt, and of PostgreSQL",
            f"{cpu_ms:.1f} ms + {state_ms:.1f} ms",
        )
    ratio, cores = found[3][0] / found[1][0], os.cpu_count() or 1
    if cores >= 6:  # three servers, PostgreSQL and who asks
        show("three servers carry, beside one", f"{ratio:.2f}x", ">= 2.2x", ratio >= 2.2)
        return
    more = sum(found[3][1:]) / sum(found[1][1:])
    what = f"three servers on {cores} cores, which one fills: CPU a prompt"
    show(what, f"{more:.2f}x of one's", "<= 1.3x", more <= 1.3)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
    finish()
