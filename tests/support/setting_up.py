"""An agent that is given its memory by ``memslot setup`` and by nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path


def set_up(directory, host):
    """Run ``memslot setup`` in an empty home, in a process of its own; what it printed."""
    usual = {name: value for name, value in os.environ.items() if not name.endswith(("_HOME", "_CONFIG_DIR"))}
    done = subprocess.run(
        [
            Path(sys.executable).with_name("memslot"), "setup",
            "--host", host, "--backend", "full_history", "--data-dir", "data",
        ],
        env={**usual, "HOME": str(directory)}, cwd=directory,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to be done" not in done.stdout
    return done.stdout


def wait_for_hooks(folder, start_s):
    """Give the hooks of a set-up host more seconds to start their server, for a busy machine."""
    settings = folder.hook.with_name("settings.json")
    patient = {**json.loads(settings.read_text("utf-8")), "start_s": start_s}
    settings.write_text(json.dumps(patient), encoding="utf-8")
