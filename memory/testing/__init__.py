"""For those who test adapters, and those who test what is built on memory.

- :class:`MemoryContract`: the conformance kit, as tests to subclass. It needs pytest.
- :class:`HostContract`: the promises of a binding to an agent framework, likewise.
- :class:`FakeBackend` over :class:`FakeNativeStore`: a complete adapter, whose native side can be watched and
  broken.
- :class:`LoopbackServer`: a backend's server, modelled on real sockets, with faults on demand.
- :class:`ScriptedLLM`: a language model endpoint on the loopback, for what would otherwise need a key.

Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.contract._late import by_name as _by_name
from memory.contract._late import loader as _loader

if TYPE_CHECKING:
    from memory.testing._fake_backend import FakeBackend
    from memory.testing._fake_store import FakeNativeError, FakeNativeStore, FakeRow
    from memory.testing._faults import FAKE_KEY, Faults
    from memory.testing._hosts import (
        PICTURE,
        TOOL_RESULT,
        HostContract,
        HostModel,
        HostUnderTest,
        ModelDown,
        ModelTurn,
        person,
    )
    from memory.testing._http_server import LoopbackAnswer, LoopbackRequest
    from memory.testing._loopback import LoopbackServer
    from memory.testing._loopback_process import LoopbackProcess
    from memory.testing._scripted_llm import ScriptedLLM
    from memory.testing.contract import MemoryContract
    from memory.testing.contract._base import ContractBase, NativeFault
    from memory.testing.contract._kit import Fingerprint, Kit, TraceList, marker
    from memory.testing.contract.budget import BudgetContract
    from memory.testing.contract.capabilities import CapabilityContract
    from memory.testing.contract.concurrency import ConcurrencyContract
    from memory.testing.contract.cs import CsContract
    from memory.testing.contract.failures import FailureContract
    from memory.testing.contract.http import LoopbackContract
    from memory.testing.contract.isolation import IsolationContract
    from memory.testing.contract.lifecycle import LifecycleContract
    from memory.testing.contract.readonly import ReadOnlyContract
    from memory.testing.contract.recording import RecordingContract
    from memory.testing.contract.safety import SafetyContract
    from memory.testing.contract.tracing import TraceContract

__all__ = [
    "BudgetContract",
    "CapabilityContract",
    "ConcurrencyContract",
    "ContractBase",
    "CsContract",
    "FAKE_KEY",
    "FailureContract",
    "FakeBackend",
    "FakeNativeError",
    "FakeNativeStore",
    "FakeRow",
    "Faults",
    "Fingerprint",
    "HostContract",
    "HostModel",
    "HostUnderTest",
    "IsolationContract",
    "Kit",
    "LifecycleContract",
    "LoopbackAnswer",
    "LoopbackContract",
    "LoopbackProcess",
    "LoopbackRequest",
    "LoopbackServer",
    "MemoryContract",
    "ModelDown",
    "ModelTurn",
    "NativeFault",
    "PICTURE",
    "ReadOnlyContract",
    "RecordingContract",
    "SafetyContract",
    "ScriptedLLM",
    "TOOL_RESULT",
    "TraceContract",
    "TraceList",
    "marker",
    "person",
]

_LATE = _by_name(
    {
        "testing._fake_backend": "FakeBackend",
        "testing._fake_store": "FakeNativeError FakeNativeStore FakeRow",
        "testing._faults": "FAKE_KEY Faults",
        "testing._hosts": "HostContract HostModel HostUnderTest ModelDown ModelTurn PICTURE TOOL_RESULT person",
        "testing._http_server": "LoopbackAnswer LoopbackRequest",
        "testing._loopback": "LoopbackServer",
        "testing._loopback_process": "LoopbackProcess",
        "testing._scripted_llm": "ScriptedLLM",
        "testing.contract": "MemoryContract",
        "testing.contract._base": "ContractBase NativeFault",
        "testing.contract._kit": "Fingerprint Kit TraceList marker",
        "testing.contract.budget": "BudgetContract",
        "testing.contract.capabilities": "CapabilityContract",
        "testing.contract.concurrency": "ConcurrencyContract",
        "testing.contract.cs": "CsContract",
        "testing.contract.failures": "FailureContract",
        "testing.contract.http": "LoopbackContract",
        "testing.contract.isolation": "IsolationContract",
        "testing.contract.lifecycle": "LifecycleContract",
        "testing.contract.readonly": "ReadOnlyContract",
        "testing.contract.recording": "RecordingContract",
        "testing.contract.safety": "SafetyContract",
        "testing.contract.tracing": "TraceContract",
    }
)
__getattr__ = _loader(globals(), _LATE)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
