"""Loaded by pytest wherever memslot is installed, so it imports nothing of it."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("memory.testing.contract")
