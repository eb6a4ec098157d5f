"""The doctor's words: each is made false underneath, and must not be said any more."""

import json
from contextlib import closing

import anyio
import pytest
from backends import of_backend
from cli_support import invoke
from doctor_support import (
    BreaksOnClosing,
    BreaksOnFormatting,
    HalfReady,
    HealedBySetup,
    KeepsQuestions,
    Leaky,
    LeakyRaw,
    LeavesHistory,
    NeedsAModule,
    NeverHealed,
    NoReadiness,
    OneForAll,
    RemembersNothing,
    ResetsEverybody,
    ResetsNothing,
    SaysReady,
    Static,
    examine,
    on,
)
from journals import backlog, open_journal
from slot_support import until

from memory.doctor.report import CHECKS
from memory.plugins.opening import build_slot
from memory.testing import FakeNativeStore

LEAK = "memory would leak"


def found(report, name):
    assert [check.name for check in report.checks] == list(CHECKS)
    return next(check for check in report.checks if check.name == name)


def status(report, name):
    return found(report, name).status


async def test_a_good_backend_passes_and_leaves_nothing():
    store = FakeNativeStore()
    report = await examine(on(store))
    assert report.ok
    assert {check.status for check in report.checks if check.name != "models"} == {"passed"}
    assert (store.rows, store.clients) == ({}, 0)


@pytest.mark.parametrize("adapter", [Leaky, LeakyRaw])
async def test_a_leak_is_seen(adapter):
    report = await examine(on(FakeNativeStore(), adapter))
    check = found(report, "isolation")
    assert (check.status, check.evidence) == ("failed", "doctor-a was shown what was written for doctor-b")
    assert LEAK in (check.fix or "")


async def test_a_leak_that_nobody_can_see_yet_is_pending_and_never_passed():
    report = await examine(on(FakeNativeStore(derivation_s=60), Leaky), ready_timeout_s=0.05)
    check = found(report, "isolation")
    assert check.status == "pending"
    assert "could not see its own yet" in check.evidence
    assert not report.ok
    assert set(report.pending) >= {"readiness", "write_read", "isolation", "reset"}


async def test_a_capability_that_is_described_and_half_made_names_the_missing_method():
    check = found(await examine(on(FakeNativeStore(), HalfReady)), "capabilities")
    assert check.status == "failed"
    assert check.evidence == "its description declares readiness, and the adapter lacks wait_until_ready"


async def test_a_module_that_is_imported_late_and_missing_says_the_pip_line():
    line = "pip install 'memslot[fake]'"
    report = await examine(on(FakeNativeStore(), NeedsAModule), described={"install": line})
    check = found(report, "setup")
    assert (check.status, check.fix) == ("failed", line)
    assert check.evidence.endswith("surely_not_installed is not installed)")


async def test_one_native_id_for_two_personas_fails_the_setup():
    check = found(await examine(on(FakeNativeStore(), OneForAll)), "setup")
    assert check.status == "failed"
    assert "templates" in (check.fix or "")


async def test_what_recalls_nothing_has_nothing_to_leak():
    report = await examine(on(FakeNativeStore(), Static), described={"capabilities": frozenset()})
    assert status(report, "capabilities") == "failed", "it offers what it does not describe"
    report = await examine(on(FakeNativeStore(), Static))
    assert report.ok
    assert "by design" in found(report, "isolation").evidence


@pytest.mark.parametrize(("fault", "said"), [("500", "HTTP 500"), ("401", "HTTP 401"), ("429", "HTTP 429")])
async def test_a_failed_write_is_a_failed_write_and_no_leak(fault, said):
    store = FakeNativeStore()
    store.faults.add(fault, times=None, endpoint="insert")
    report = await examine(on(store))
    check = found(report, "write")
    assert check.status == "failed"
    assert said in check.evidence
    assert {"isolation", "write_read"} <= {check.name for check in report.checks if check.status == "skipped"}
    assert not any(LEAK in (check.fix or "") for check in report.checks)
    hint = {"500": "own log", "401": "key in memory.backends.fake", "429": "quota"}[fault]
    assert hint in (check.fix or "")


async def test_a_write_without_an_answer_is_not_written():
    store = FakeNativeStore()
    store.faults.add("slow", times=None, endpoint="insert", delay_s=60)
    config = {
        "memory": {"backend": "fake", "deadlines": {"write_s": 0.3, "query_s": 0.3}, "backends": {"fake": {}}}
    }
    report = await examine(on(store), config=config)
    assert status(report, "write") == "failed"
    assert "nothing says whether it is stored" in found(report, "write").evidence


async def test_committed_is_looked_at_again():
    report = await examine(on(FakeNativeStore(), RemembersNothing))
    assert status(report, "write_read") == "failed"
    assert status(report, "isolation") == "pending"
    assert status(report, "reset") == "pending"


async def test_nothing_of_it_is_kept_in_a_journal_which_would_send_it_again(tmp_path):
    config = {"memory": {"backend": "fake", "journal": {}, "backends": {"fake": {}}}}
    store = FakeNativeStore()
    store.faults.add("refused", times=None, endpoint="insert")
    report = await examine(on(store), config=config)
    assert status(report, "write") == "failed", "a journal would call it queued"
    with closing(open_journal(tmp_path / ".memslot")) as journal:
        assert backlog(journal) == 0
    assert "the journal is left out" in found(report, "config").evidence


async def test_ready_is_looked_at_again():
    check = found(await examine(on(FakeNativeStore(derivation_s=60), SaysReady)), "write_read")
    assert check.status == "failed"
    assert check.evidence.startswith("said to be ready, and what was written was not found")


async def test_a_failed_derivation_is_failed_and_says_why():
    store = FakeNativeStore(derivation_s=0.01)
    store.derivation_fails = True
    report = await examine(on(store))
    assert "rows were never derived" in found(report, "readiness").evidence
    assert {name: status(report, name) for name in ("readiness", "write_read", "isolation")} == {
        "readiness": "failed",
        "write_read": "skipped",
        "isolation": "pending",
    }


async def test_what_comes_later_is_waited_for_where_nobody_can_say_when():
    report = await examine(on(FakeNativeStore(derivation_s=0.7), NoReadiness), ready_timeout_s=30)
    assert report.ok, report
    report = await examine(on(FakeNativeStore(derivation_s=60), NoReadiness), ready_timeout_s=0.1)
    assert status(report, "write_read") == "pending"


async def test_a_question_that_is_remembered_fails_read_only():
    check = found(await examine(on(FakeNativeStore(), KeepsQuestions)), "read_only")
    assert (check.status, check.evidence) == ("failed", "what was said in read-only mode was remembered")


async def test_a_reset_that_does_nothing_is_seen():
    check = found(await examine(on(FakeNativeStore(), ResetsNothing)), "reset")
    assert check.status == "failed"
    assert "said verified, and what was written is still there; stays: everything" in check.evidence


async def test_a_reset_of_everybody_is_seen():
    check = found(await examine(on(FakeNativeStore(), ResetsEverybody)), "reset")
    assert check.status == "failed"
    assert check.evidence == "the reset of doctor-a emptied doctor-b as well"


async def test_what_a_reset_leaves_is_shown():
    check = found(await examine(on(FakeNativeStore(), LeavesHistory)), "reset")
    assert check.status == "passed"
    assert check.evidence.endswith("; stays: history rows")


async def test_the_second_persona_is_cleared_though_the_first_reset_failed():
    store = FakeNativeStore()
    store.faults.add("500", endpoint="delete_rows")
    report = await examine(on(store))
    assert status(report, "reset") == "failed"
    assert store.rows
    assert all("doctor_2da" in row.space for row in store.rows.values())


async def test_a_running_server_is_not_down_and_may_be_mended_by_a_setup():
    report = await examine(on(FakeNativeStore(), HealedBySetup))
    assert report.ok
    assert found(report, "health").evidence.startswith("unavailable until a scope was set up; now ok")
    check = found(await examine(on(FakeNativeStore(), NeverHealed)), "health")
    assert (check.status, check.evidence, check.fix) == (
        "failed", "the embedder behind it does not work", None,
    )  # fmt: skip


async def test_nobody_there_names_the_block_with_the_address():
    store = FakeNativeStore()
    store.faults.add("refused", times=None)
    check = found(await examine(on(store)), "health")
    assert (check.status, check.fix) == ("failed", "start it, or correct its address in memory.backends.fake")


async def test_a_health_that_is_late_is_not_set_up_again_and_names_the_deadline():
    store = FakeNativeStore()
    store.faults.add("slow", times=None, endpoint="ping", delay_s=30)
    memory = {"backend": "fake", "deadlines": {"health_s": 0.05}, "backends": {"fake": {}}}
    check = found(await examine(on(store), config={"memory": memory}), "health")
    assert check.fix == (
        "see whether it runs at its address in memory.backends.fake; or raise memory.deadlines.health_s"
    )
    assert "create_space" not in store.operations


@pytest.mark.parametrize(
    ("adapter", "name"), [(BreaksOnClosing, "close"), (BreaksOnFormatting, "write_read")]
)
async def test_a_defect_of_the_plugin_is_a_finding(adapter, name):
    errors = []
    report = await examine(on(FakeNativeStore(), adapter), on_error=errors.append)
    assert status(report, name) == "failed"
    assert "sk-secret" not in report.model_dump_json()
    assert errors


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize("when", ["write", "isolation", "reset"])
async def test_a_callback_that_raises_is_raised_and_leaves_nothing(when, error):
    store = FakeNativeStore()

    def raises(check):
        if check.name == when:
            raise error("the terminal is gone")

    with pytest.raises(error, match="the terminal is gone"):
        await examine(on(store), on_check=raises)
    assert (store.rows, store.clients) == ({}, 0)


async def test_a_cancelled_doctor_leaves_nothing():
    store = FakeNativeStore(derivation_s=60)
    async with anyio.create_task_group() as group:
        group.start_soon(examine, on(store))
        await until(lambda: "insert" in store.operations)
        group.cancel_scope.cancel()
    assert (store.rows, store.clients) == ({}, 0)


async def test_each_check_is_named_before_it_runs():
    begun = []
    await examine(on(FakeNativeStore()), on_begin=begun.append)
    assert begun == list(CHECKS)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, "weak"),
        ({"retrieval": "search", "supplement": "none"}, "dated"),
    ],
)
def test_honcho_is_weak_where_it_answers_in_prose(tmp_path, options, seen):
    of_backend("honcho")
    pytest.importorskip("honcho")
    block = {"base_url": "http://127.0.0.1:1", **options}
    config = {"memory": {"backend": "honcho", "backends": {"honcho": block}}}
    assert build_slot(config, data_dir=tmp_path).traits.pet_observability == seen


def test_the_doctor_says_it(tmp_path):
    file = tmp_path / "memslot.yaml"
    file.write_text(json.dumps({"memory": {"condition": "full_history"}}), encoding="utf-8")
    examined = invoke("doctor", file, "--json", env={"HOME": str(tmp_path)})
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert "PET dated" in checks["capabilities"]["evidence"]
