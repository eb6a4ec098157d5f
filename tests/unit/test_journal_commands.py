"""``memslot journal list``, ``retry`` and ``forget --number``, for entries of every kind."""

import json

from cli_support import invoke

from memory.storage.insert import insert


def test_entries_of_every_kind_are_listed_retried_and_forgotten(tmp_path):
    config = tmp_path / "memory.yaml"
    config.write_text("memory: {condition: no_memory, data_dir: data, journal: true}")
    for number in range(3):
        insert(tmp_path / "data" / "memslot.db", "turn", f"t{number}", "{}")
    from contextlib import closing

    from memory.storage.store import SqliteStore

    with closing(SqliteStore(tmp_path / "data" / "memslot.db")) as store:
        store.call(lambda db: db.execute("UPDATE outbox SET state = 'aside' WHERE seq < 3"))

    def listed():
        return json.loads(invoke("journal", "list", config, "--json").stdout)

    assert [(row["number"], row["kind"], row["status"]) for row in listed()["entries"]] == [
        (1, "turn", "aside"),
        (2, "turn", "aside"),
        (3, "turn", "waiting"),
    ]
    assert json.loads(invoke("journal", "retry", config, "2", "--json").stdout) == {"retried": [2]}
    assert listed()["counts"] == {"aside": 1, "waiting": 2}
    assert json.loads(invoke("journal", "forget", config, "--number", "1", "--json").stdout) == {
        "forgotten": [1]
    }
    assert [row["number"] for row in listed()["entries"]] == [2, 3]
