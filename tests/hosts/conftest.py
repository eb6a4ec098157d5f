"""Hosts are tested with their real packages, in environments of their own: ``make test-nanobot`` and the like."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("nanobot") else ["with_nanobot/*"]
