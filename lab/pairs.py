#!/usr/bin/env python3
"""Measures pairs of unmodified perftest programs on an emulated RDMA NIC, without and under isolaned, beside the simulator.

usage: lab/pairs.py [--runs 3] [--seconds 32] [--dilation N] [--pair NAME ...] [--policy none|justitia] FOLDER

FOLDER has isolane, isolaned, isolane-ibverbs and libisolane_shim.so. Each pair runs on two emulated hosts, the first program
beside the second one; the simulator runs the same command lines. Prints a table of medians, and the machine's load. Needs
perftest and two processors that others leave free: as root the broker gets a real-time priority.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROFILE = "cx5-100g-roce"
# The profile's values: usable rate, most messages and Justitia's target.
RATE_GBPS = 98.0
MESSAGES_PER_S = 90.9e6
TARGET_US = 1.6
# A bandwidth program measures from 2 s after its start to 2 s before its end; the times of starting and ending come on top.
STARTED_S = 4.0
MARGIN_S = 3.0
# perftest prints MiB/s.
GBPS_OF_MIB = 8.388608e-3
SMALL_BYTES = 4096


@dataclass(frozen=True)
class Pair:
    """Two command lines without devices, and what the simulator and the daemon get for them."""

    first: str
    second: str
    dilation: int
    daemon: str = ""
    simulator: tuple[str, ...] = ()

    @property
    def trips(self) -> int:
        """How many of the printed latencies a message takes: a ping-pong prints half of a round trip."""
        return 2 if "write_lat" in self.first else 1


# Bursts and chunks that suit a test of half a minute on a device slowed this much; the defaults are times of the slow device.
# The simulator gets the daemon's chunk too.
BULK = 'burst_without_latency = "100ms"\nchunk_without_latency = "64KiB"\n'
CHUNK = ("token_bytes=5000",)
BULK_CHUNK = ("token_without_latency_bytes=65536",)
PAIRS = {
    "write-lat-beside-write": Pair("ib_write_lat -s 16 -I 0", "ib_write_bw -s 65536 -t 8", 30_000, 'burst = "600ms"\n', CHUNK),
    "read-lat-beside-write": Pair("ib_read_lat -s 16 -e", "ib_write_bw -s 65536 -t 8", 12_000, "", CHUNK),
    "read-lat-beside-read": Pair("ib_read_lat -s 16 -e", "ib_read_bw -s 65536 -t 8", 12_000, "", CHUNK),
    "small-beside-large": Pair("ib_write_bw -s 64", "ib_write_bw -s 1048576", 5_000, BULK, BULK_CHUNK),
    "one-beside-16-pairs": Pair("ib_write_bw -s 65536 -t 8", "ib_write_bw -s 65536 -t 8 -q 16", 12_000, BULK, BULK_CHUNK),
}


@dataclass(frozen=True)
class Figures:
    """What one run found: goodput in Gb/s, latency in us of the modelled device, and whether the broker did not keep up."""

    values: dict[str, float]
    late: bool = False


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program in the background and ends it."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(path: Path, process: subprocess.Popen[bytes], text: str = "") -> None:
    """Waits for a file, and a text in it."""
    end = time.monotonic() + 60
    while not (path.exists() and (not text or text in path.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"{process.args!r} is not ready: {path} is missing or has no {text!r}")
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether a program listens at a TCP port."""
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    lines = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == "0A" for line in lines)


class Run:
    """One run of a pair."""

    def __init__(self, pair: Pair, folder: Path, paced: bool) -> None:
        self.pair, self.folder, self.paced = pair, folder, paced
        self.environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ISOLANE_SHIM": str(folder / "libisolane_shim.so"),
            "ISOLANE_IBVERBS": str(folder / "isolane-ibverbs"),
        }

    def measure(self, seconds: int, expected_us: float | None) -> Figures:
        """Runs the pair; `expected_us` is the simulated latency of the first program, which sets its iterations."""
        with tempfile.TemporaryDirectory() as name:
            work = Path(name)
            nics = work / "nics"
            priority = ["chrt", "-f", "1"] if os.geteuid() == 0 else []
            broker = [*priority, "isolane", "rdma", "emulate", PROFILE, "--dilation", str(self.pair.dilation)]
            with running([*broker, "--directory", str(nics)], work / "broker.log", self.environment) as emulator:
                wait_for(work / "broker.log", emulator, "ready")
                with_daemon = self.under_daemon if self.paced else partial(self.clients, paced=[])
                figures = with_daemon(work, seconds, expected_us)
            return Figures(figures.values, "behind its clock" in (work / "broker.log").read_text())

    def join(self, work: Path) -> list[str]:
        """The beginning of a command on the emulated hosts."""
        return ["isolane", "rdma", "emulate", "--join", str(work / "nics"), "--"]

    def under_daemon(self, work: Path, seconds: int, expected_us: float | None) -> Figures:
        """Runs the pair's clients under isolaned."""
        sockets = work / "run"
        sockets.mkdir(mode=0o700)
        dilation = self.pair.dilation
        device = (
            f'rate = "{RATE_GBPS / dilation * 1e6:.0f}kb/s"\nmessages_per_s = {MESSAGES_PER_S / dilation:.0f}\n'
            f'target = "{TARGET_US * dilation:.0f}us"\n{self.pair.daemon}'
        )
        devices = "".join(f'[[device]]\nname = "rnic{number}"\n{device}' for number in (0, 1))
        places = f'socket = "{sockets}/clients/s"\ncontrol_socket = "{sockets}/control/s"\ntrust_classes = true\n'
        config = work / "isolaned.toml"
        config.write_text(places + devices)
        command = [*self.join(work), "isolaned", "--config", str(config)]
        with running(command, work / "daemon.log", self.environment) as daemon:
            wait_for(sockets / "clients/s", daemon)
            # The reference flow measures before the programs start.
            time.sleep(2)
            paced = ["isolane", "rdma", "run", "--require", "--socket", str(sockets / "clients/s")]
            return self.clients(work, seconds, expected_us, paced)

    def clients(self, work: Path, seconds: int, expected_us: float | None, paced: list[str]) -> Figures:
        """Runs both clients at once. A latency client starts before the other one and ends after it."""
        length = ["-D", str(seconds)]
        first_length = length
        if expected_us is not None:
            iterations = max(20, int(1.25e6 * (seconds + STARTED_S) / (expected_us * self.pair.dilation * self.pair.trips)))
            first_length = ["-U", "-n", str(iterations)]
        first = self.both_ends(work, "first", 18_701, self.pair.first, first_length, paced)
        second = self.both_ends(work, "second", 18_702, self.pair.second, length, paced)
        with first as measured, second as bulk:
            begun = time.monotonic()
            if bulk.wait(seconds * 10) != 0:
                sys.exit(f"{self.pair.second} failed:\n{(work / 'second.log').read_text()}")
            bulk_ended = time.monotonic()
            if expected_us is not None and measured.poll() is not None:
                sys.exit(f"{self.pair.first} ended before {self.pair.second}: its messages take less time than simulated")
            if measured.wait(seconds * 10) != 0:
                sys.exit(f"{self.pair.first} failed:\n{(work / 'first.log').read_text()}")
            ended = time.monotonic()
        values = {f"second, {key}": value for key, value in self.goodput(work / "second.log").items()}
        if expected_us is None:
            return Figures({f"first, {key}": value for key, value in self.goodput(work / "first.log").items()} | values)
        beside = (begun + STARTED_S - ended, bulk_ended - MARGIN_S - ended)
        return Figures({f"first, {key}": value for key, value in self.latency(work / "first.log", beside).items()} | values)

    def goodput(self, log: Path) -> dict[str, float]:
        """The goodput that a client printed."""
        rows = [line.split() for line in log.read_text().splitlines() if line.strip()[:1].isdigit()]
        if not rows:
            sys.exit(f"no figures:\n{log.read_text()}")
        size, mib_per_s, messages_millions = (float(rows[-1][at]) for at in (0, 3, 4))
        # The rate of few small messages has more digits in millions per second than in MiB/s.
        by_messages = size < SMALL_BYTES
        gbps = messages_millions * size * 8e-3 if by_messages else mib_per_s * GBPS_OF_MIB
        return {"Gb/s": gbps * self.pair.dilation}

    def latency(self, log: Path, beside: tuple[float, float]) -> dict[str, float]:
        """The percentiles of the messages between two times, in seconds after the client's end."""
        rows = [line.split(", ") for line in log.read_text().splitlines()]
        samples = [float(row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]
        end, inside = 0.0, []
        for sample in reversed(samples):
            start = end - sample * self.pair.trips / 1e6
            if start >= beside[0] and end <= beside[1]:
                inside.append(sample / self.pair.dilation)
            end = start
        if len(inside) < 20:
            sys.exit(f"only {len(inside)} of {len(samples)} messages are beside the other program: give more --seconds")
        return {f"p{part} us": statistics.quantiles(inside, n=100, method="inclusive")[part - 1] for part in (50, 99)}

    @contextmanager
    def both_ends(
        self, work: Path, name: str, port: int, line: str, length: list[str], paced: list[str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Starts server and client of a perftest line."""
        program = [*line.split(), "-F", *length, "-p", str(port)]
        server = [*self.join(work), *program, "-d", "rnic1"]
        run = [*paced, *(["--class", "latency"] if "_lat" in line else []), "--"] if paced else []
        client = [*self.join(work), *run, *program, "-d", "rnic0", "localhost"]
        with running(server, work / f"{name}-server.log", self.environment) as process:
            end = time.monotonic() + 60
            while not listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"the server of {line} does not listen:\n{(work / f'{name}-server.log').read_text()}")
                time.sleep(0.1)
            with running(client, work / f"{name}.log", self.environment) as process:
                yield process


def simulated(pair: Pair, folder: Path, paced: bool) -> dict[str, float]:
    """The simulator's figures for the same command lines."""
    tenants = "".join(
        f'[[tenant]]\nname = "{name}"\n{kind}perftest = "{line}"\n'
        for name, line, kind in (
            ("first", pair.first.removesuffix(" -e"), 'class = "latency"\n' if "_lat" in pair.first else ""),
            ("second", pair.second, ""),
        )
    )
    # The emulated hosts are on one switch.
    scenario = f'profile = "{PROFILE}"\ntopology = "switch"\nwarmup = "500us"\nduration = "50ms"\n{tenants}'
    command = [str(folder / "isolane"), "sim", "-", "--policy", "justitia" if paced else "none", "--json"]
    settings = [word for setting in pair.simulator if paced for word in ("--set", setting)]
    done = subprocess.run([*command, *settings], input=scenario, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    values = {}
    for tenant in json.loads(done.stdout)["tenants"]:
        name = tenant["name"]
        if name == "first" and "_lat" in pair.first:
            values |= {f"first, {key} us": tenant["latency_us"][key] for key in ("p50", "p99")}
        else:
            values[f"{name}, Gb/s"] = tenant["goodput_gbps"]
    return values


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=32, help="real time of a run")
    parser.add_argument("--dilation", type=int, help="of all pairs, instead of their own")
    parser.add_argument("--pair", action="append", choices=sorted(PAIRS), help="default: all")
    parser.add_argument("--policy", choices=("none", "justitia"), help="default: both")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    folder = options.folder.resolve()
    print("| pair | dilation | policy | figure | emulated | simulated | difference | least to most | late runs | load |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.pair or PAIRS:
        pair = PAIRS[name]
        if options.dilation:
            pair = Pair(pair.first, pair.second, options.dilation, pair.daemon, pair.simulator)
        for paced in (False, True):
            if options.policy and paced != (options.policy == "justitia"):
                continue
            predicted = simulated(pair, folder, paced)
            run = Run(pair, folder, paced)
            latency = predicted.get("first, p50 us")
            found = [run.measure(options.seconds, latency) for _ in range(options.runs)]
            late = sum(one.late for one in found)
            load = os.getloadavg()[0]
            for figure, value in predicted.items():
                each = sorted(one.values[figure] for one in found)
                middle = statistics.median(each)
                print(
                    f"| {name} | {pair.dilation:,} | {'Justitia' if paced else 'none'} | {figure} | {middle:.2f} | {value:.2f} "
                    f"| {(middle / value - 1) * 100:+.0f} % | {each[0]:.2f} to {each[-1]:.2f} | {late} of {len(found)} | {load:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
