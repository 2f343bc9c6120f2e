"""Runs one fuzz target under atheris: `python fuzz_coverage.py TARGET CORPUS LIBFUZZER-OPTIONS`; without arguments it lists the targets.

`.ci/fuzz-python` runs it. The corpus is a folder, in which the target's seeds are put first.
"""

from __future__ import annotations

import hashlib
import pathlib
import sys

import atheris

with atheris.instrument_imports(include=["isolane", "yaml", "json"]):
    from fuzz_targets import TARGETS, seeds_of


def main(arguments: list[str]) -> None:
    """Does not return once atheris runs."""
    if not arguments:
        print("\n".join(TARGETS))
        return
    target, corpus, *options = arguments
    for seed in seeds_of(target):
        (pathlib.Path(corpus) / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    atheris.Setup([sys.argv[0], corpus, *options], TARGETS[target].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
