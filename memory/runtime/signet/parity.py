"""How much of Signet is covered, by the server's own routes, the client's methods and those of Signet's
TypeScript SDK 0.58.1, so that nothing is missing unseen; names and reasons stand in ``parity.toml``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

Cover = Literal["covered", "partial", "absent"]


class Row(NamedTuple):
    action: str
    endpoint: str  # HTTP method and path
    sdk: str  # methods of Signet's SDK that call it, by comma
    method: str  # of :class:`AdapterClient`
    client: Cover  # by :class:`AdapterClient`
    server: Cover  # by :class:`RuntimeAdapterServer`
    reason: str = ""  # why one of them is not covered


def _names() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("parity.toml").read_text("utf-8"))


def parity() -> list[Row]:
    """Every endpoint that is served, then what of the SDK and of real clients is not."""
    from memory.runtime.signet.endpoints import ROUTES, Endpoints

    names = _names()
    served = {
        f"{method} {path.replace(':path', '')}": getattr(Endpoints, handler).__doc__ or path
        for method, path, handler, _ in ROUTES
    }
    rows = []
    for endpoint, purpose in {**served, "GET /health": ""}.items():
        action = purpose.partition("\n")[0].rstrip(".")
        row: dict[str, Any] = {"action": action, "sdk": "", "method": "", "reason": ""}
        row |= names["served"].get(endpoint, {})
        server: Cover = "absent" if row.pop("refused", False) else "partial" if row["reason"] else "covered"
        client: Cover = "covered" if row["method"] else "absent"
        row["reason"] = row["reason"] or ("" if row["method"] else "no method of ours calls it")
        rows.append(Row(**row, endpoint=endpoint, client=client, server=server))
    return rows + [Row(**row, method="", client="absent", server="absent") for row in names["absent"]]
