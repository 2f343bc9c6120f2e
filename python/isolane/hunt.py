"""The experiments of a hunt on the cores of a Ray cluster.

    isolane hunt --target sim:cx6-200g-roce --executor ray

starts `python -m isolane.hunt -- WORDS` and exchanges lines of JSON with it: first what the hunt measured at its start, then
an experiment a line. Every core of the cluster has a worker, which is `isolane WORDS` on that node (it must be on the path
there, or be named in ISOLANE) and takes the same lines; answers go back as they come, with the number of their
experiment. The result of a hunt does not depend on who answers. Files (--file) travel to the nodes under their own names. Needs
the extra `ray`; a cluster is found as Ray finds it (RAY_ADDRESS), else a local one is started. With --local N there
are N workers on this machine and no Ray, for tests.

Limits: a worker that ends is started again twice, then the hunt ends; a node that Ray adds later is not used.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from isolane.installing import extra


class WorkerError(Exception):
    """A worker that did not begin, or ended."""


class Worker:
    """One `isolane hunt --worker` on the node where this object lives."""

    def __init__(self, program: str, words: Sequence[str], files: Mapping[str, str], hello: str) -> None:
        self.directory = tempfile.TemporaryDirectory()
        for name, text in files.items():
            (pathlib.Path(self.directory.name) / name).write_text(text, encoding="utf-8")
        try:
            self.child = subprocess.Popen(
                [program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.directory.name
            )
        except OSError as error:
            raise WorkerError(f"cannot start {program}: {error}") from error
        self.first = self.ask(hello)

    def ready(self) -> str:
        """What the worker said when it was ready."""
        return self.first

    def ask(self, line: str) -> str:
        """The worker's answer to one line."""
        orders, answers = self.child.stdin, self.child.stdout
        if orders is None or answers is None:
            raise WorkerError("a worker has no input or no output")
        try:
            orders.write(line)
            orders.flush()
        except OSError as error:
            raise WorkerError(f"a worker ended: {error}") from error
        answer = answers.readline()
        if not answer:
            raise WorkerError(f"a worker ended with {self.child.wait()}")
        return answer

    def close(self) -> None:
        """Ends the worker."""
        if self.child.stdin is not None:
            self.child.stdin.close()
        self.child.wait()
        self.directory.cleanup()


def serve(asks: Sequence[Callable[[str], str]], orders: TextIO, answers: TextIO) -> None:
    """Gives every line of `orders` to one of `asks` that is free, and writes the answers as they come."""
    lines: queue.Queue[str | None] = queue.Queue()
    writing = threading.Lock()

    def work(ask: Callable[[str], str]) -> None:
        while (line := lines.get()) is not None:
            try:
                answer = ask(line)
            except Exception as error:  # Ray wraps what a worker raised; the hunt gets the error and ends.
                cause = getattr(error, "cause", None) or error
                answer = json.dumps({"id": json.loads(line)["id"], "error": str(cause)}) + "\n"
            with writing:
                answers.write(answer)
                answers.flush()

    threads = [threading.Thread(target=work, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    for line in orders:
        lines.put(line)
    for _ in threads:
        lines.put(None)
    for thread in threads:
        thread.join()


def on_ray(program: str, words: Sequence[str], files: Mapping[str, str], hello: str) -> tuple[str, list[Callable[[str], str]]]:
    """A worker for every core of the cluster: what the first one said, and how to ask each."""
    # Any: Ray is an extra, and only partly typed where it is there.
    ray: Any = importlib.import_module("ray")
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.WARNING)
    count = max(1, int(ray.cluster_resources().get("CPU", 1)))
    actor: Any = ray.remote(num_cpus=1, max_restarts=2, max_task_retries=2)(Worker)
    actors = [actor.remote(program, list(words), dict(files), hello) for _ in range(count)]
    firsts: list[str] = ray.get([one.ready.remote() for one in actors])

    def asks(one: Any) -> Callable[[str], str]:
        def ask(line: str) -> str:
            answer: str = ray.get(one.ask.remote(line))
            return answer

        return ask

    return odd(firsts), [asks(one) for one in actors]


def odd(firsts: Sequence[str]) -> str:
    """What one worker said at first; of several builds one that is not the first's, so that the hunt sees it."""
    return next((first for first in firsts if first != firsts[0]), firsts[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m isolane.hunt", description=__doc__.split("\n", 1)[0], allow_abbrev=False
    )
    parser.add_argument("--isolane", default=os.environ.get("ISOLANE", "isolane"), help="the program, as nodes find it (ISOLANE)")
    parser.add_argument("--file", action="append", default=[], type=pathlib.Path, help="a file that the words name")
    parser.add_argument("--local", type=int, metavar="N", help="N workers here, without Ray")
    parser.add_argument("words", nargs="+", help="after --: the words that make isolane a worker")
    known = parser.parse_args(arguments)
    try:
        files = {path.name: path.read_text(encoding="utf-8") for path in known.file}
    except OSError as error:
        print(f"isolane.hunt: {error}", file=sys.stderr)
        return 2
    # The workers' folder has the files, so that paths become names; one with a folder stays known as a path.
    here = {str(path): f"./{path.name}" for path in known.file}
    words = [here.get(word, word) for word in known.words]
    words = [f"sim:{here[word[4:]]}" if word.startswith("sim:") and word[4:] in here else word for word in words]
    hello = sys.stdin.readline()
    local: list[Worker] = []
    try:
        if known.local is None:
            first, asks = on_ray(known.isolane, words, files, hello)
        else:
            local = [Worker(known.isolane, words, files, hello) for _ in range(known.local)]
            first, asks = odd([one.ready() for one in local]), [one.ask for one in local]
        ready = json.loads(first)
        ready["workers"] = len(asks)
        print(json.dumps(ready), flush=True)
        serve(asks, sys.stdin, sys.stdout)
    except ImportError:
        print(f"isolane.hunt: Ray is not installed; {extra('ray')}", file=sys.stderr)
        return 3
    except Exception as error:  # Ray wraps what a worker raised.
        print(f"isolane.hunt: {getattr(error, 'cause', None) or error}", file=sys.stderr)
        return 3
    finally:
        for one in local:
            one.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
