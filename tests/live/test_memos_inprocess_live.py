"""The conformance kit on MemOS in this process, over the database and language model of a real server beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import anyio
import pytest
from memos_rig import MemosProcess
from test_memos_live import config

from memory import MemoryAdapter, MemoryAdapterRegistry, load_config
from memory.testing.contract import Fingerprint, MemoryContract

_REGISTRY = MemoryAdapterRegistry()
BLOCK: dict[str, Any] = {"transport": "inprocess"}


@pytest.fixture(scope="module", autouse=True)
def inprocess(memos_rig_process: MemosProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MemOS' settings, its offline tokenizer, and one adapter that keeps MemOS up until the last test."""
    from chonkie import tokenizer

    with pytest.MonkeyPatch.context() as patch:
        for name, value in memos_rig_process.settings.items():
            if name != "MEMOS_BASE_PATH":
                patch.setenv(name, value)
        patch.setitem(tokenizer._chonkie_tokenizer_classes, "gpt2", tokenizer.CharacterTokenizer)
        settings = load_config(config("http://unused.invalid", **BLOCK))
        keeper = _REGISTRY.create(settings, data_dir=tmp_path_factory.mktemp("memos"))
        anyio.run(keeper.health)
        yield
        anyio.run(keeper.aclose)


class _InProcess(MemoryContract):
    block: ClassVar[dict[str, Any]] = {}
    native_query = ("get_memory", {})
    ready_timeout_s = 30.0
    concurrent_scopes = 8
    clean_up = True

    @pytest.fixture
    def adapter_factory(self, tmp_path: Path) -> Callable[[], MemoryAdapter]:
        settings = load_config(config("http://unused.invalid", **BLOCK, **self.block))
        return lambda: _REGISTRY.create(settings, data_dir=tmp_path)

    @pytest.fixture
    def fingerprint(self, memos_rig_process: MemosProcess) -> Fingerprint:
        return memos_rig_process.memories


class TestAsync(_InProcess):
    """As configured by default."""


class TestFine(_InProcess):
    block: ClassVar[dict[str, Any]] = {"async_mode": "sync", "mode": "fine"}
