"""A server's address as a configuration gives it. Imports no HTTP client, so that options may use it."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

EXAMPLE = "http://127.0.0.1:8765"


def server_address(url: str, example: str = EXAMPLE) -> str:
    """``url`` without its trailing slash.

    Args:
        url: what was given.
        example: shown in errors.

    Raises:
        ValueError: not http(s), without a host, or with credentials, a query or a fragment; worded as a part of a
            message that names the field.
    """
    try:
        parts = urlsplit(url.strip())
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname)
        well_formed = well_formed and (parts.port is None or parts.port > 0)
    except ValueError:
        well_formed = False
    if not well_formed:
        raise ValueError(f"must be an http or https URL with a host, e.g. {example}")
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials; give the key as api_key")
    if parts.query or parts.fragment:
        raise ValueError("must not hold a query or fragment; give the server's address alone")
    return url.strip().rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
