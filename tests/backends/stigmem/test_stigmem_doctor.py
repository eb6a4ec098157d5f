"""The doctor on a configuration that lists a node for each scope, where no synthetic scope has a place."""

from stigmem_double import StigmemDouble

from memory import open_memory
from memory.doctor.runner import run_doctor


def config_of(*nodes):
    listed = {f"demo:person{number}": node.url for number, node in enumerate(nodes)}
    scope = {"run_id": "demo", "persona_id": "person0"}
    block = {"isolation": "node", "nodes": listed, "retry_pause_s": 0}
    return {"memory": {"backend": "stigmem", "scope": scope, "backends": {"stigmem": block}}}


def evidence(report, name):
    (check,) = (check for check in report.checks if check.name == name)
    return check.status, check.evidence


async def test_each_persona_is_lent_a_node_and_their_owners_see_nothing_of_it():
    with StigmemDouble() as first_node, StigmemDouble() as second_node:
        config = config_of(first_node, second_node)
        async with open_memory(config) as memory:
            await memory.after_turn(user="My favourite tea at Hakone is sencha.", session_id="s")
            report = await run_doctor(config)
            assert report.ok, report
            found = await memory.before_turn("Which is my favourite tea at Hakone?", session_id="later")
        assert "sencha" in found
        assert "oolong" not in found
        for node in (first_node, second_node):
            assert any("oolong" in str(request.json) for request in node.requests)


async def test_one_node_has_room_for_one_persona_and_isolation_cannot_be_seen():
    with StigmemDouble() as node:
        report = await run_doctor(config_of(node))
    assert report.pending == ("isolation",)
    assert evidence(report, "setup")[1].endswith("the configuration has room for one scope alone")
    assert "room for one scope alone" in evidence(report, "isolation")[1]
    assert evidence(report, "reset")[0] == "passed"
