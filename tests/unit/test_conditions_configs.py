"""The ready configurations of the conditions pass every check of the doctor, as they are shipped."""

import re
from pathlib import Path

import pytest
import yaml

from conditions.rolling_summary import RollingSummaryOptions
from memory.doctor.runner import run_doctor
from memory.plugins.config import load_config

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = ("no_memory", "full_history", "rolling_summary", "static_profile", "oracle_ipas")


@pytest.mark.parametrize("name", NAMES)
async def test_every_check_passes(name, tmp_path):
    report = await run_doctor(CONFIGS / f"{name}.yaml", data_dir=tmp_path)
    assert {check.name for check in report.checks if check.status != "passed"} == {"models"}
    assert (report.provider, report.kind) == (name, "control")


def test_the_commented_llm_block_is_valid():
    text = (CONFIGS / "rolling_summary.yaml").read_text(encoding="utf-8")
    text = text.replace("      summariser: extractive", "      # summariser: extractive")
    text = re.sub(r"# (summariser: llm|llm:|  \w+:)", r"\1", text)
    config = load_config(yaml.safe_load(text), env={"OPENAI_API_KEY": "not-a-key"})
    options = config.parse_options(RollingSummaryOptions)
    assert options.summariser == "llm"
    assert options.llm is not None
    assert options.llm.timeout_s == 60
    assert "not-a-key" not in str(config.redacted(options))
