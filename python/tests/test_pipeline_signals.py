"""A run that gets a signal to stop, at any moment, and one that is killed: nothing stays behind for long.

Units: seconds, which only end tests that hang. Tests with namespaces skip with a printed reason where these cannot be made.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from isolane.pipeline import spaces

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pipeline_support import HERE  # noqa: E402
from test_pipeline_watch import written  # noqa: E402

SPACES = spaces.missing()
needs_spaces = pytest.mark.skipif(bool(SPACES), reason=f"tiers cannot be made here: {SPACES}")
NAMES = pathlib.Path("/run/netns")
PATIENCE_S = 90.0
#: The operators of these tests, as a user would name them.
OWN = ("--allow-module", "pipeline_operators")


def started(*words: str) -> subprocess.Popen[str]:
    """A run of its own process group, as from a terminal: also where these tests run under `nohup` or in a script's
    background, which a run heeds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])}
    pipe = subprocess.PIPE
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        return subprocess.Popen(
            [sys.executable, *words], stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Looks until it does."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, f"{what}: not in {PATIENCE_S:g} s"
        time.sleep(0.01)


def children(process: int) -> list[int]:
    """Processes that this one started and that still run."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def apart(process: int) -> bool:
    """Whether it has children, all in other process groups."""
    found = children(process)
    try:
        return bool(found) and all(os.getpgid(one) != os.getpgid(process) for one in found)
    except ProcessLookupError:
        return False


def names_of(process: int) -> list[str]:
    """The namespaces of a maker."""
    return sorted(path.name for path in NAMES.glob(f"isot{process}_*"))


@needs_spaces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_run_and_removes_what_it_made(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    run = started("-m", "isolane.pipeline", "run", written(tmp_path), *OWN, "--items", "100000", "--rate", "5")
    try:
        assert run.stderr is not None
        assert "operators run" in run.stderr.readline()
        assert len(names_of(run.pid)) == 2
        inside = children(run.pid)
        # `timeout` sends its signal to the process and to the group.
        run.send_signal(number)
        run.send_signal(number)
        _, error = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
    assert run.returncode == 128 + number
    assert "Traceback" not in error and f"ended by {number.name}" in error
    assert names_of(run.pid) == []
    assert len(inside) == 3 and not [one for one in inside if spaces.start_of(one) is not None]


def test_an_interrupt_while_operators_start_is_no_traceback(tmp_path: pathlib.Path) -> None:
    run = started("-m", "isolane.pipeline", "run", written(tmp_path), *OWN, "--tiers", "local", "--items", "100000")
    try:
        # What a terminal sends goes to the whole group: operators, which still import their libraries, are not in it.
        wait_until(lambda: apart(run.pid), "operators start in groups of their own")
        os.killpg(run.pid, signal.SIGINT)
        _, error = run.communicate(timeout=PATIENCE_S)
    finally:
        run.kill()
    assert run.returncode == 130
    assert "Traceback" not in error and "ended by SIGINT" in error


def test_only_names_of_makers_that_are_gone_are_stale() -> None:
    own = spaces.maker()
    number, _, start = own.partition("_")
    assert not spaces.is_stale(f"isot{own}-1-0")
    assert spaces.is_stale(f"isot{number}_{int(start) + 1}-1-0")
    assert not spaces.is_stale(f"isot{number}-1-0")
    # No process has this number: it is beyond what the kernel gives.
    assert spaces.is_stale("isot4194305_7-1-0") and spaces.is_stale("isot4194305_7-try")
    for other in ("isotope-1", "isot4194305_7", "isot4194305_7-1-0-x", "isolane-lab-4194305_7-c0", "isot4194305_7-x", ""):
        assert not spaces.is_stale(other)


@needs_spaces
def test_what_a_killed_maker_left_is_removed_with_what_runs_there() -> None:
    made = started(
        "-c",
        "import asyncio\n"
        "from isolane.pipeline.spaces import Spaces, Wire\n"
        "async def body():\n"
        "    async with Spaces(['edge', 'cloud'], [Wire(50.0, 1.0)]):\n"
        "        print('made', flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(body())\n",
    )
    left = None
    try:
        assert made.stdout is not None
        assert made.stdout.readline() == "made\n"
        names = names_of(made.pid)
        assert len(names) == 2
        left = subprocess.Popen(["nsenter", f"--net={NAMES / names[0]}", "sleep", "600"])
        own = pathlib.Path("/proc/self/ns/net").readlink()
        wait_until(lambda: pathlib.Path(f"/proc/{left.pid}/ns/net").readlink() != own, "it enters the namespace")
        made.kill()
        made.wait(PATIENCE_S)
        # Another run that starts at this moment may be the one that removes them.
        spaces.sweep()
        wait_until(lambda: names_of(made.pid) == [], "the namespaces are removed")
        assert left.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        for process in (made, left):
            if process is not None:
                process.kill()
                process.wait(PATIENCE_S)
        spaces.sweep()


@pytest.mark.parametrize("words", [("isolane.pipeline", "run", "plan.json"), ("isolane.planner", "plan", "query.yaml")])
def test_an_interrupt_during_the_imports_is_no_traceback(words: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    # The first import of numpy interrupts the program, as Ctrl-C does then.
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "isolane: ended by SIGINT\n")
