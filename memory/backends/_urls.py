"""Addresses of servers, checked without an HTTP client: options are read where none is installed."""

from __future__ import annotations

from urllib.parse import urlsplit

from memory import InputError

__all__ = ["check_url"]


def check_url(url: str, where: str = "url") -> str:
    """A server's address without its trailing slash.

    Raises:
        InputError: not http(s), without a host, or with credentials, a query or a fragment.
    """
    try:
        parts = urlsplit(url.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise InputError(f"{where}: is not a URL; write e.g. http://127.0.0.1:8765") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise InputError(f"{where}: must be an http or https URL with a host, e.g. http://127.0.0.1:8765")
    if parts.username is not None or parts.password is not None:
        raise InputError(f"{where}: must not hold credentials; give the key as api_key")
    if parts.query or parts.fragment:
        raise InputError(f"{where}: must not hold a query or fragment; give the server's address alone")
    return url.strip().rstrip("/")
