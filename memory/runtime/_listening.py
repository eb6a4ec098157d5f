"""The socket a server listens on."""

from __future__ import annotations

import socket

from memory.contract.errors import ConfigError


def listening_socket(host: str, port: int, *, field: str) -> socket.socket:
    """A TCP socket that listens and sends each part of an answer at once.

    Without TCP_NODELAY an answer in two parts waits 40 ms for its client's acknowledgement of the first; asyncio
    sets it only on sockets that were made with a protocol number, which those of ``socket.create_server`` are not.

    Args:
        host: a name or an address of this machine.
        port: 0 takes a free one.
        field: the option the two come from, for the error.

    Raises:
        ConfigError: the port is taken, or there is no such address.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        what = getattr(error, "strerror", None) or "no such address"
        raise ConfigError(f"{field}: cannot listen on {host} port {port} ({what})") from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
