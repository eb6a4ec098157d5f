"""memslot's conformance kit on a node with tenants and on a shared core node, over real sockets."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from http_contract import LoopbackContract
from kit_selection import OF_THE_CLIENT, OF_THE_SLOT
from stigmem_double import StigmemDouble
from stigmem_node_model import ADMIN_KEY


class _OnDouble(LoopbackContract):
    server = StigmemDouble
    native_query = ("facts", {})
    options: ClassVar[Mapping[str, Any]] = {}

    def native_rows(self, raw):
        return [hit for hit in raw["facts"] if hit.get("from_card") is not True]

    @classmethod
    def configuration(cls, url):
        scope = {"run_id": "test", "persona_id": "ada"}
        block = {"retry_pause_s": 0.01, "url": url, **cls.options}
        return {"memory": {"backend": "stigmem", "scope": scope, "backends": {"stigmem": block}}}


class TestTenants(_OnDouble):
    thorough = (*OF_THE_SLOT, *OF_THE_CLIENT)
    server_arguments: ClassVar[Mapping[str, Any]] = {"auth": True, "multi_tenant": True}
    options: ClassVar[Mapping[str, Any]] = {"api_key": ADMIN_KEY}


@pytest.mark.thorough
class TestSharedNode(_OnDouble):
    options: ClassVar[Mapping[str, Any]] = {"isolation": "node", "allow_sharing": True}
