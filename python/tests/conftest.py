"""What all tests share: the modules of their own operators, which a user would have to name, and the program `isolane`."""

from __future__ import annotations

import os
import shutil

import pytest

from isolane import allowed

allowed.allow(["gpu_operators", "pipeline_operators", "planner_operators", "test_planner_messages"])


@pytest.fixture(name="program")
def program_fixture() -> str:
    """The path of `isolane`; skips where there is none."""
    found = os.environ.get("ISOLANE") or shutil.which("isolane")
    if found is None:
        pytest.skip("no isolane on the path, and ISOLANE does not name one")
    return found
