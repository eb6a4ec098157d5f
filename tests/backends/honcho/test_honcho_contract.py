"""memslot's conformance kit on the model of a Honcho server, over real sockets, with every fault of HTTP."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from honcho_double import HonchoDouble
from http_contract import LoopbackContract
from kit_selection import OF_THE_CLIENT, OF_THE_SLOT


class _OnDouble(LoopbackContract):
    server = HonchoDouble
    server_arguments: ClassVar[Mapping[str, Any]] = {"enqueue_s": 0.003, "derive_s": 0.005, "delete_s": 0.005}
    options: ClassVar[Mapping[str, Any]] = {}
    native_query = ("conclusions", {})
    rewrites = "a model derives conclusions from what is said"
    ready_timeout_s = 60.0  # dozens of scopes share one Python server

    @classmethod
    def configuration(cls, url):
        scope = {"run_id": "test", "persona_id": "ada"}
        pauses = {"quiet_period_s": 0.05, "poll_s": 0.005, "retry_pause_s": 0.01}
        block = {"base_url": url, **pauses, **cls.options}
        return {"memory": {"backend": "honcho", "scope": scope, "backends": {"honcho": block}}}


DERIVED = {"event_ids": "a conclusion does not say what it was drawn from"}


class TestContext(_OnDouble):
    """As it comes: ``session.context``. Prose has its peer's id, which nothing deletes."""

    without_ids = DERIVED
    limits_natively = False  # a session's own messages are bounded by tokens alone
    thorough = (*OF_THE_SLOT, *OF_THE_CLIENT)


@pytest.mark.thorough
class TestSearch(_OnDouble):
    """Messages by filters that hold."""

    anyio_backends = ("asyncio",)
    options: ClassVar[Mapping[str, Any]] = {"retrieval": "search"}
