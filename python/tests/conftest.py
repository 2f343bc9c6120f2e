"""The tests' own operators are code that a user would have to name; the tests name them here, once."""

from __future__ import annotations

from isolane import allowed

allowed.allow(["gpu_operators", "pipeline_operators", "planner_operators", "test_planner_messages"])
