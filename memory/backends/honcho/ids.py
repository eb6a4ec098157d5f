"""Scopes as Honcho's ids. Imports no SDK."""

from __future__ import annotations

import string

from memory import MemoryScope
from memory.adapter import IdAlphabet, ScopeEncoder
from memory.backends.honcho.options import OTHERS_PEER, HonchoOptions

IDS = IdAlphabet(safe=string.ascii_uppercase + "-", escape="_", separator="_x", max_length=512)
"""Honcho's ids: ``[a-zA-Z0-9_-]``, 1 to 512 characters, measured."""


class HonchoIds:
    """The native ids of scopes; ``owner`` names the block in errors."""

    def __init__(self, options: HonchoOptions, owner: str) -> None:
        template = options.workspace_template
        templates = None if template is None else {"id": template}
        self._workspaces = ScopeEncoder(IDS, templates, owner=f"{owner}.workspace_template")
        self._taken = (options.assistant_peer, OTHERS_PEER)

    def native_scope(self, scope: MemoryScope) -> dict[str, str]:
        peer_id = IDS.encode(scope.persona_id)
        if peer_id in self._taken:
            # Still the persona's alone: nothing else is written with this character escaped.
            peer_id = f"{IDS.escape}{ord(peer_id[0]):02x}{peer_id[1:]}"
        return {"workspace_id": self._workspaces.encode(scope)["id"], "peer_id": peer_id}
