"""The kit's HTTP part over the notes server, and over every adapter that is wrong; run by test_http_mutants.py."""

from http_contract import LoopbackContract
from http_notes import HTTP_MUTANTS, NotesAdapter, NotesServer


class TestHealthy(LoopbackContract):
    anyio_backends = ("asyncio",)
    server = NotesServer
    adapter_type = NotesAdapter

    @classmethod
    def make(cls, url, data_dir):
        return cls.adapter_type(url)


for _mutant in HTTP_MUTANTS:
    _name = f"Test_{_mutant.__name__}"
    globals()[_name] = type(_name, (TestHealthy,), {"adapter_type": _mutant, "__module__": __name__})
