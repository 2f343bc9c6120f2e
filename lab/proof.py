"""The lines that a proof prints, and what every proof needs. Runs inside the virtual machine; standard library only.

A proof prints one line per measured quantity, seven words apart by single blanks:

    proof NAME QUANTITY VALUE UNIT EXPECTATION VERDICT

EXPECTATION is `-`, a bound such as `>=0.97`, or `aim>=0.97`. VERDICT is
  held    the bound was kept
  broken  a bound that must be kept was not: the proof fails
  missed  an aim was not reached: the table shows it, and the proof does not fail
  measured  there is no expectation
All other output of a proof is for its reader. Exit: 0, 1 when a line is broken or the proof could not
be carried out, 77 when it does not apply here, after a line `skip REASON`.
"""
from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn

QUICK = os.environ.get("LAB_MODE", "full") == "quick"
LAB = Path(__file__).resolve().parent


class Proof:
    """Collects the lines of one proof and its exit status."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.broken = False

    def must(self, quantity: str, value: float, unit: str, relation: str, bound: float) -> bool:
        """A bound that has to be kept."""
        held = compare(value, relation, bound)
        self.broken |= not held
        self._line(quantity, value, unit, f"{relation}{figure(bound)}", "held" if held else "broken")
        return held

    def aim(self, quantity: str, value: float, unit: str, relation: str, bound: float) -> bool:
        """A bound that the emulated and noisy machine may make us miss; the table records it."""
        held = compare(value, relation, bound)
        self._line(quantity, value, unit, f"aim{relation}{figure(bound)}", "held" if held else "missed")
        return held

    def tell(self, quantity: str, value: float | str, unit: str = "-") -> None:
        """A figure without an expectation."""
        self._line(quantity, value, unit, "-", "measured")

    def skip(self, reason: str) -> NoReturn:
        """Ends the proof: it does not apply here."""
        print(f"skip {reason}", flush=True)
        sys.exit(77)

    def end(self) -> NoReturn:
        """Ends the proof, after the devices' own word on what they had to send again."""
        again = retries()
        if again:
            print(f"sent again, in all: {again}", flush=True)
            self.tell("transport_retries", sum(again.values()), "events")
        sys.exit(1 if self.broken else 0)

    def _line(self, quantity: str, value: float | str, unit: str, expectation: str, verdict: str) -> None:
        shown = figure(value) if isinstance(value, (int, float)) else value.replace(" ", "_")
        print(f"proof {self.name} {quantity} {shown} {unit.replace(' ', '_')} {expectation} {verdict}", flush=True)


def compare(value: float, relation: str, bound: float) -> bool:
    """Whether the relation holds."""
    return {">=": value >= bound, "<=": value <= bound, "=": value == bound}[relation]


def figure(value: float) -> str:
    """Four significant digits, and no exponent."""
    if isinstance(value, int) or value == int(value):
        return str(int(value))
    digits = max(0, 3 - int(f"{abs(value):e}".split("e")[1]))
    return f"{value:.{min(digits, 6)}f}"


def median(values: Iterable[float]) -> float:
    """The middle value; of an even number, the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 for equal shares, 1/n when one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


# The devices' counters of what was sent again, or came out of order.
RETRY_COUNTERS = ("completer_retry_err", "out_of_seq_request", "retry_exceeded_err")


def retries() -> dict[str, int]:
    """Those that are not zero, since boot, and frames that the kernel dropped on their way in; empty without devices."""
    found = {}
    for device in ("r0", "r1"):
        for name in RETRY_COUNTERS:
            counter = Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}")
            if counter.exists():
                found[f"{device} {name}"] = int(counter.read_text())
    if found:
        lines = Path("/proc/net/softnet_stat").read_text().splitlines()
        found["frames dropped"] = sum(int(line.split()[1], 16) for line in lines)
    return {name: count for name, count in found.items() if count}


def need(*programs: str) -> str | None:
    """Why Isolane cannot take part, or None: which of the programs are not built."""
    binaries = Path(os.environ.get("LAB_BIN", ""))
    missing = [name for name in programs if not (binaries / name).exists()]
    return f"not built: {', '.join(missing)}" if missing else None


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Polls the condition every 20 ms. The limit bounds what never comes, not how fast a machine is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def listens(port: int) -> bool:
    """Whether a TCP socket listens on the port."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(wanted) and words[3] == "0A":
                return True
    return False


def output(*words: str) -> str:
    """The standard output of a program that must succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
