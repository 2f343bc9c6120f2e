"""Runs rdma-core's pyverbs suite on one device and writes each test's outcome as JSON.

    python3 lab/pyverbs_suite.py SUITE_DIRECTORY DEVICE OUT.json [MODULE...]

Outcomes are ok, skipped, failed. Tests that need a certain vendor's device are left out, as they would all be skipped.
"""
import importlib
import json
import sys
import unittest
from pathlib import Path

VENDORS = ("mlx5", "efa", "cuda", "addr")


class Outcomes(unittest.TestResult):
    """Notes what became of each test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def note(self, test: unittest.TestCase, outcome: str) -> None:
        """The worst outcome of a test and its sub-tests stays."""
        if self.outcomes.get(test.id()) != "failed":
            self.outcomes[test.id()] = outcome

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().addSuccess(test)
        self.note(test, "ok")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addFailure(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.note(test, "failed")
        print(f"--- {test.id()}\n{self.failures[-1][1]}")

    def addError(self, test: unittest.TestCase, err: object) -> None:  # noqa: N802
        super().addError(test, err)
        self.note(test, "failed")
        print(f"--- {test.id()}\n{self.errors[-1][1]}")


def main() -> None:
    """Loads, runs, writes."""
    directory, device, out, *chosen = sys.argv[1:]
    sys.path[:0] = [directory, str(Path(directory) / "tests")]
    # The suite reads its options from the command line when it is loaded.
    sys.argv[1:] = ["--dev", device]
    parser = importlib.import_module("args_parser").parser
    parser.parse_args()
    names = chosen or sorted(path.stem for path in (Path(directory) / "tests").glob("test_*.py"))
    names = [name for name in names if not name.startswith(tuple(f"test_{vendor}" for vendor in VENDORS))]
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.{name}" for name in names])
    result = Outcomes()
    suite.run(result)
    Path(out).write_text(json.dumps(result.outcomes, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
