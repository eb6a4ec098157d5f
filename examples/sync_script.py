"""A memory in a script that does not await: what was said in an earlier run is known in the next one.

memslot setup
python sync_script.py "I drink oolong."
python sync_script.py "Do I drink oolong?"
"""

from __future__ import annotations

import argparse
import uuid

from memory import MemslotError, open_memory_sync


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words")
    parser.add_argument("--config", default="memslot.yaml")
    given = parser.parse_args()
    session = uuid.uuid4().hex
    try:
        with open_memory_sync(given.config) as memory:
            print(memory.before_turn(given.words, session_id=session) or "nothing is remembered yet")
            print(memory.after_turn(session_id=session, user=given.words).status)
    except MemslotError as error:
        print(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
