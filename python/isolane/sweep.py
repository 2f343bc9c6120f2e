"""A sweep too large for one machine: shards of `isolane sweep` as Ray tasks.

    python -m isolane.sweep scenario.toml --vary traffic.all.load=0.5,0.8 --seeds 20 --csv

Options are those of `isolane sweep`, which runs on every node (it must be on the path there, or be named with --isolane). The
scenario travels with the tasks, one core and one shard each; results come back as JSON and are merged by the program, so
that the output has the same bytes as a run on one machine. Needs the extra `ray`; a cluster is found as Ray finds
it (RAY_ADDRESS), else a local one is started.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from isolane.installing import extra

#: Options of `isolane sweep` that this program sets itself.
OWN = ("--shard", "--jobs", "--merge")


class SweepError(Exception):
    """A shard that failed, with what the program said."""


def shard(program: str, name: str, text: str, options: Sequence[str], index: int, count: int) -> str:
    """Runs one shard where this is called; returns its JSON."""
    with tempfile.TemporaryDirectory() as directory:
        # The same file name everywhere: an unnamed scenario is called after it.
        path = pathlib.Path(directory) / name
        path.write_text(text, encoding="utf-8")
        command = [program, "sweep", str(path), *options, "--shard", f"{index}/{count}", "--jobs", "1", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().replace(f"{directory}/", "")
        raise SweepError(f"shard {index}/{count} ended with {done.returncode}: {said}")
    return done.stdout


def merge(program: str, shards: Sequence[str], output: Sequence[str]) -> str:
    """The shards' JSON as the output of the whole sweep."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for index, text in enumerate(shards):
            path = pathlib.Path(directory) / f"{index}.json"
            path.write_text(text, encoding="utf-8")
            paths.append(str(path))
        done = subprocess.run(
            [program, "sweep", "--merge", *paths, *output], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise SweepError(f"the merge ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def on_ray(program: str, name: str, text: str, options: Sequence[str], count: int | None) -> list[str]:
    """All shards as Ray tasks, in their order."""
    # Any: Ray is an extra, and only partly typed where it is there.
    ray: Any = importlib.import_module("ray")
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.WARNING)
    shards = count or max(1, int(ray.cluster_resources().get("CPU", 1)))
    task: Any = ray.remote(num_cpus=1, max_retries=2)(shard)
    running = [task.remote(program, name, text, list(options), index + 1, shards) for index in range(shards)]
    results: list[str] = ray.get(running)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    # Without abbreviations: --shard is the program's own, and no short form of --shards.
    parser = argparse.ArgumentParser(
        prog="python -m isolane.sweep", description=__doc__.split("\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("scenario", type=pathlib.Path, help="network scenario file")
    parser.add_argument("--shards", type=int, help="tasks (the cluster's cores)")
    parser.add_argument("--isolane", default="isolane", help="the program, as nodes find it")
    parser.add_argument("--out", type=pathlib.Path, help="write the output here instead of printing it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="every point with its whole result")
    form.add_argument("--csv", action="store_true", help="a line per point and class")
    known, options = parser.parse_known_args(arguments)
    wrong = [option for option in options if option.split("=", 1)[0] in OWN]
    if wrong:
        parser.error(f"{wrong[0]}: this program sets it; --shards says how many tasks there are")
    if known.shards is not None and known.shards < 1:
        parser.error("--shards: must be at least 1")
    output = ["--json"] if known.json else ["--csv"] if known.csv else []
    try:
        text = known.scenario.read_text(encoding="utf-8")
        shards = on_ray(known.isolane, known.scenario.name, text, options, known.shards)
        merged = merge(known.isolane, shards, output)
    except ImportError:
        print(f"isolane.sweep: Ray is not installed; {extra('ray')}", file=sys.stderr)
        return 3
    except (OSError, SweepError) as error:
        print(f"isolane.sweep: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # Ray wraps what a task raised.
        cause = getattr(error, "cause", None)
        print(f"isolane.sweep: {cause if isinstance(cause, SweepError) else error}", file=sys.stderr)
        return 2 if isinstance(cause, SweepError) else 3
    if known.out is None:
        sys.stdout.write(merged)
        return 0
    try:
        known.out.write_text(merged, encoding="utf-8")
    except OSError as error:
        print(f"isolane.sweep: cannot write --out: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
