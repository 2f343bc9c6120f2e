"""What the proofs share: devices, tenants, measured lines. Runs inside the virtual machine; standard library only.

A proof prints one line per measured quantity, seven words apart by single blanks:

    proof NAME QUANTITY VALUE UNIT EXPECTATION VERDICT

EXPECTATION is `-`, a bound such as `>=0.97`, or `aim>=0.97`. VERDICT is
  held    the bound was kept
  broken  a bound that must be kept was not: the proof fails
  missed  an aim was not reached: the table says so, and the proof does not fail
  told    there is no expectation
Everything else that a proof prints is for whoever looks into it. Exit: 0, 1 when a line is broken or the proof could not
be carried out, 77 when it does not apply here, after a line `skip REASON`.
"""
from __future__ import annotations

import itertools
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

QUICK = os.environ.get("LAB_MODE", "full") == "quick"
LAB = Path(__file__).resolve().parent

# The address of each device that lab/devices makes.
ADDRESS = {"r0": "10.7.0.1", "r1": "10.7.0.2", "s0": "10.8.0.1", "s1": "10.8.0.2"}

_ports = itertools.count(20000)


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
        self._line(quantity, value, unit, "-", "told")

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
        print(f"proof {self.name} {quantity} {shown} {unit} {expectation} {verdict}", flush=True)


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


def devices(*options: str) -> None:
    """Makes r0 and r1 (see lab/devices), or shapes those that are there."""
    subprocess.run([LAB / "devices", *options], check=True)
    Meter.prepare()


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


def gid_index(device: str) -> int:
    """The index of the device's RoCEv2 GID for its IPv4 address, or 0 (iWARP)."""
    port = Path("/sys/class/infiniband") / device / "ports/1"
    for entry in sorted((port / "gids").iterdir(), key=lambda path: int(path.name)):
        kind = port / "gid_attrs/types" / entry.name
        try:
            if ":ffff:" in entry.read_text() and "v2" in kind.read_text():
                return int(entry.name)
        except OSError:
            continue
    return 0


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Polls the condition every 20 ms."""
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


# perftest's code of a patient timer.
PATIENT = "18"


@dataclass
class Tenant:
    """Two perftest processes: the server on one device, the client on the other.

    `options` goes to both; `prefix` comes before the program at both ends, for instance `isolane run --`. Unless the
    options name a timeout (-u), it is 1.07 s (4 us * 2^18): the link loses nothing (lab/devices), and perftest's 67 ms are over
    before a busy emulated machine has answered. Soft-RoCE would send again what is under way, and retries without end.
    """

    program: str
    options: Sequence[str]
    prefix: Sequence[str] = ()
    client: str = "r0"
    server: str = "r1"
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=lambda: next(_ports))
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def listen(self) -> None:
        """Starts the server."""
        self._start(self.server, [])

    def connect(self) -> None:
        """Waits for the server and starts the client."""
        server = self.processes[0]
        wait_until(lambda: listens(self.port) or server.poll() is not None, 60, f"server of {self.program}")
        self._start(self.client, [ADDRESS[self.server]])

    def connected(self) -> bool:
        """Whether the server has connected queue pairs, and whether both ends live: an end that has gone is an error."""
        codes = [process.poll() for process in self.processes]
        if any(code is not None for code in codes):
            self.stop()
            texts = [process.communicate()[0][-1500:] for process in self.processes]
            raise RuntimeError(f"{self.program} ended before its time with {codes} (server, client):\n" + "\n".join(texts))
        return bool(queue_pairs(self.server, self.processes[0].pid))

    def result(self, timeout_s: float) -> Result:
        """Waits for the client and then the server, and reads what the client printed."""
        outputs: list[str] = []
        for process in reversed(self.processes):
            try:
                outputs.append(process.communicate(timeout=timeout_s)[0])
            except subprocess.TimeoutExpired:
                self.stop()
                raise TimeoutError(f"{self.command(self.client)}: no end within {timeout_s} s") from None
        if any(process.returncode for process in self.processes):
            codes = [process.returncode for process in reversed(self.processes)]
            raise RuntimeError(f"{self.program} ended with {codes} (client, server):\n" + "\n".join(outputs))
        if self.prefix and any(UNPACED in text for text in outputs):
            raise RuntimeError(f"{self.program} was not paced:\n" + "\n".join(outputs))
        return Result.read(self.program, outputs[0])

    def stop(self) -> None:
        """Kills both ends."""
        for process in self.processes:
            process.kill()
            process.wait()

    def command(self, device: str) -> list[str]:
        """The command line of the end on `device`."""
        program = [self.program, "-d", device, "-x", str(gid_index(device)), "-F", "-p", str(self.port)]
        if device.startswith("s"):
            program.append("-R")
        timeout = [] if "-u" in self.options else ["-u", PATIENT]
        return [*self.prefix, *program, *timeout, *self.options]

    def _start(self, device: str, more: Sequence[str]) -> None:
        self.processes.append(
            subprocess.Popen(
                [*self.command(device), *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **self.environment},
            )
        )


@dataclass(frozen=True)
class Result:
    """What perftest's client printed. Absent figures are NaN."""

    bandwidth_mb_s: float = float("nan")
    rate_mpps: float = float("nan")
    typical_us: float = float("nan")
    p99_us: float = float("nan")

    @staticmethod
    def read(program: str, output: str) -> Result:
        """Reads the row below the `#bytes` heading."""
        lines = output.splitlines()
        heading = next((n for n, line in enumerate(lines) if line.lstrip().startswith("#bytes")), None)
        if heading is None:
            raise RuntimeError(f"{program} printed no table:\n{output}")
        for line in lines[heading + 1 :]:
            words = line.split()
            if words and re.fullmatch(r"\d+", words[0]):
                numbers = [float(word) for word in words]
                if program.endswith("_lat"):
                    return Result(typical_us=numbers[4], p99_us=numbers[7])
                return Result(bandwidth_mb_s=numbers[3], rate_mpps=numbers[4])
        raise RuntimeError(f"{program} printed no row:\n{output}")


def need(*programs: str) -> str | None:
    """Why Isolane cannot take part, or None: which of the programs are not built."""
    binaries = Path(os.environ.get("LAB_BIN", ""))
    missing = [name for name in programs if not (binaries / name).exists()]
    return f"not built: {', '.join(missing)}" if missing else None


# What the proofs of pacing need.
ISOLANE = ("isolaned", "isolane", "libisolane_shim.so")


# Of the bits on the wire, those that are payload: 4,096 bytes in frames of 4,154.
PAYLOAD = 4096 / 4154
# And of those, what an operator hands out: a queue into which goes as much as comes out never drains.
HANDED_OUT = 0.96


def operator_file(
    rate_mbit: int | None = None, weights: Mapping[str, int] | None = None, target_us: float = 10_000, period_ms: int = 1
) -> str:
    """isolaned's file for the lab: r0 and r1, which watch the link between them, at nearly the rate that tc has set."""
    lines = [f'period = "{period_ms}ms"']
    for device in ("r0", "r1"):
        lines += ["[[device]]", f'name = "{device}"']
        if rate_mbit:
            # A percentile over the newest hundred: the default window is made for microseconds, and lasts minutes here.
            lines += [f'target = "{round(target_us)}us"', 'reference_period = "5ms"', "reference_count = 100"]
            lines.append(f'rate = "{round(rate_mbit * PAYLOAD * HANDED_OUT * 1000)}kb/s"')
    lines += ["[[peer]]", 'device = "r0"', 'remote_device = "r1"']
    for name, weight in (weights or {}).items():
        lines += ["[[tenant]]", f'name = "{name}"', f"weight = {weight}"]
    return "\n".join(lines) + "\n"


# What the shim says when no daemon paces its program: then a measurement means nothing.
UNPACED = "unpaced"


class Daemon:
    """isolaned on both devices, for as long as the `with` block lasts."""

    def __init__(self, config: str = "", on: Sequence[str] = ("r0", "r1")) -> None:
        self.socket = Path("/run/isolane/isolaned.sock")
        self.config = config
        self.on = on
        self.log = Path("/tmp/isolaned.log")
        self.log.unlink(missing_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        words = ["isolaned", *(word for device in self.on for word in ("--device", device))]
        if self.config:
            file = Path("/tmp/isolaned.toml")
            file.write_text(self.config)
            words = ["isolaned", "--config", str(file)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        wait_until(self.accepts, 20, "isolaned listens")

    def accepts(self) -> bool:
        """Whether a shim would be let in. A daemon that has ended is an error."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"isolaned has ended:\n{self.log.read_text()}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(str(self.socket))
            except OSError:
                return False
        return True

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def cpu_s(self) -> float:
        """Processor time that it has used, user and system."""
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Daemon:
        self.start()
        # Tenants must not disturb the measurement of the idle device.
        if "[[peer]]" in self.config:
            done = "connected" if "target =" in self.config else "the target"
            wait_until(lambda: done in self.log.read_text(), 40, f"isolaned says {done}")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                print("isolaned did not end within 5 s of SIGTERM", flush=True)
                self.kill()


def under(tenant: str, kind: str = "auto") -> list[str]:
    """The words before a program that put it under Isolane."""
    return ["isolane", "run", "--class", kind, "--tenant", tenant, "--"]


def sent_bytes(interface: str = "v0") -> int:
    """Bytes that have left the interface, which is below the token bucket."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


@dataclass
class Rate:
    """Bytes per second through an interface since the start."""

    interface: str = "v0"
    begin_bytes: int = 0
    begin_s: float = 0.0

    def start(self) -> Rate:
        """Starts anew."""
        self.begin_bytes, self.begin_s = sent_bytes(self.interface), time.monotonic()
        return self

    def read(self) -> float:
        """MB/s (of 10^6 bytes) so far."""
        return (sent_bytes(self.interface) - self.begin_bytes) / (time.monotonic() - self.begin_s) / 1e6


class LinkQueue:
    """What waits before the slow link, looked at 50 times a second while the `with` block lasts.

    Method: the backlog of the interface's root discipline by rtnetlink, since starting `tc` costs an emulated processor
    more than it would measure.
    """

    INTERVAL_S = 0.02
    _ALL_QDISCS, _DUMP, _DONE, _ERROR = 38, 0x301, 3, 2
    _ROOT, _STATISTICS, _QUEUE = 0xFFFFFFFF, 7, 3

    def __init__(self, interface: str = "v0") -> None:
        self.index = socket.if_nametoindex(interface)
        self.samples: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def __enter__(self) -> LinkQueue:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.samples.append(self.backlog())
        self._socket.close()

    def p99_us(self, rate_mbit: float) -> float:
        """99th percentile of the time that the link needs for what waits."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 8 / rate_mbit

    def _watch(self) -> None:
        while not self._end.wait(self.INTERVAL_S):
            self.samples.append(self.backlog())

    def backlog(self) -> int:
        """Bytes that wait now."""
        self._socket.send(struct.pack("=IHHIIBxxxiIII", 36, self._ALL_QDISCS, self._DUMP, 1, 0, 0, self.index, 0, 0, 0))
        found: int | None = None
        while True:
            data = self._socket.recv(1 << 16)
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == self._ERROR:
                    raise OSError("the kernel does not tell of its queues")
                if kind == self._DONE:
                    if found is None:
                        raise OSError(f"interface {self.index} has no root discipline")
                    return found
                index, _, parent = struct.unpack_from("=iII", data, at + 20)
                if (index, parent) == (self.index, self._ROOT):
                    statistics = attributes(data[at + 36 : at + length])[self._STATISTICS]
                    found = struct.unpack_from("=II", attributes(statistics)[self._QUEUE])[1]
                at += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """The netlink attributes of a message by their types."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        found[kind] = data[at + 4 : at + length]
        at += max(4, (length + 3) & ~3)
    return found


class Meter:
    """Counts the bytes that arrive at r1 for each tenant, packet by packet, in the kernel.

    Method: a classifier on the receiving interface matches the destination queue pair in the RoCEv2 header (bytes 32 to 35
    from the start of the IP header) and counts. Which queue pairs are whose is what the kernel says of the servers.
    """

    INTERFACE = "v1"
    # Of the classifier that stays, the last one a packet comes to.
    STAYS = 65535

    @classmethod
    def prepare(cls) -> None:
        """Makes the place of the classifiers and one that matches nothing and stays, before there is traffic.

        The first classifier that is made and the last that is deleted make the kernel patch its own code. An emulated
        processor that runs that very code while another one patches it may see a breakpoint that nobody expects any
        more ("Oops: int3" in __dev_queue_xmit or tc_run), and the machine ends.
        """
        if "clsact" not in output("tc", "qdisc", "show", "dev", cls.INTERFACE):
            subprocess.run(["modprobe", "-a", "sch_ingress", "cls_u32", "act_gact"], check=True)
            subprocess.run(["tc", "qdisc", "add", "dev", cls.INTERFACE, "clsact"], check=True)
            nothing = f"pref {cls.STAYS} protocol ip u32 match ip protocol 255 0xff action ok"
            subprocess.run(["tc", "filter", "add", "dev", cls.INTERFACE, "ingress", *nothing.split()], check=True)

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self.tenants = tenants
        old = {entry["pref"] for entry in self._classifiers()} - {self.STAYS}
        commands = [f"filter del dev {self.INTERFACE} ingress pref {number} protocol ip\n" for number in sorted(old)]
        for number, tenant in enumerate(tenants, start=1):
            numbers = queue_pairs("r1", tenant.processes[0].pid)
            if not numbers:
                raise RuntimeError(f"{tenant.program}: the kernel shows no queue pair of its server")
            for queue_pair in numbers:
                match = f"match ip protocol 17 0xff match u32 {queue_pair:#x} 0x00ffffff at 32 action ok"
                commands.append(f"filter add dev {self.INTERFACE} ingress pref {number} protocol ip u32 {match}\n")
        # In one go: a start of `tc` beside busy tenants takes an emulated processor a second.
        subprocess.run(["tc", "-batch", "-"], input="".join(commands), text=True, check=True)
        self.start()

    def start(self) -> None:
        """Starts anew."""
        self.begin, self.begin_s = self._bytes(), time.monotonic()

    def read(self) -> list[float]:
        """MB/s (of 10^6 bytes) of each tenant since the start."""
        bytes_now = self._bytes()
        # Like the start: after the counting, which takes long here.
        seconds = time.monotonic() - self.begin_s
        return [(now - before) / seconds / 1e6 for now, before in zip(bytes_now, self.begin)]

    def _bytes(self) -> list[int]:
        counts = [0] * len(self.tenants)
        for entry in self._classifiers():
            if entry["pref"] != self.STAYS:
                for action in entry.get("options", {}).get("actions", []):
                    counts[entry["pref"] - 1] += action["stats"]["bytes"]
        return counts

    def _classifiers(self) -> list[dict[str, Any]]:
        return json.loads(output("tc", "-s", "-j", "filter", "show", "dev", self.INTERFACE, "ingress"))


def queue_pairs(device: str, pid: int | None = None) -> list[int]:
    """Numbers of the connected queue pairs on the device, of one process or of all. The kernel names threads."""
    threads = {int(name) for name in os.listdir(f"/proc/{pid}/task")} if pid else set()
    shown = json.loads(output("rdma", "-j", "resource", "show", "qp", "link", device) or "[]")
    return [
        entry["lqpn"]
        for entry in shown
        if entry.get("type") in ("RC", "UC", "UD")
        and entry.get("state") in ("RTR", "RTS")
        and (pid is None or entry.get("pid") in threads)
    ]


@contextmanager
def background(tenants: Sequence[Tenant], settle_s: float = 1.0) -> Iterator[None]:
    """Runs the tenants until the block ends, which begins when their traffic flows."""
    try:
        for tenant in tenants:
            tenant.listen()
        for tenant in tenants:
            tenant.connect()
        for tenant in tenants:
            wait_until(tenant.connected, 40, f"{tenant.program} connects")
        time.sleep(settle_s)
        yield
        for tenant in tenants:
            tenant.connected()
    finally:
        for tenant in tenants:
            tenant.stop()


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Keeps processors busy with programs that send nothing."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def together(tenants: Sequence[Tenant], timeout_s: float) -> list[Result]:
    """Runs the tenants side by side: all servers first, then all clients."""
    try:
        for tenant in tenants:
            tenant.listen()
        for tenant in tenants:
            tenant.connect()
        return [tenant.result(timeout_s) for tenant in tenants]
    finally:
        for tenant in tenants:
            tenant.stop()


def alone(tenant: Tenant, timeout_s: float = 60) -> Result:
    """Runs one tenant."""
    return together([tenant], timeout_s)[0]


def output(*words: str) -> str:
    """The standard output of a program that must succeed."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
