"""Applications on far memory that is really slower, with or without `isolaned --mem`. Runs inside the virtual machine of a proof whose
header has `tiers`, `counted` and `slow`; standard library only. `traffic` counts bytes of each tier for the service."""
from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

from memory_service import SOCKET
from proof import LAB, listens, wait_until

GROUPS = Path("/sys/fs/cgroup")
RESCTRL = Path("/sys/fs/resctrl")
APPLICATIONS = Path(os.environ["LAB_CACHE"]) / "applications"
PYTHON = str(APPLICATIONS / "vector/bin/python3")
LIBRARIES = {"LD_LIBRARY_PATH": str(APPLICATIONS / "usr/lib/x86_64-linux-gnu"), "OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"}
MIB = 1 << 20
PORT, KEYS, VALUE_BYTES, KEYS_PER_REQUEST = 7777, 100_000, 256, 64
# A group keeps its nodes from one application to the next, and nothing is written where the text is empty.
ALL_NODES = "0-1"
# Numbers of applications that the service gives, from 1.
COUNTED = 8
COUNTERS = ("mbm_local_bytes", "mbm_total_bytes")

# The beginning of each program: it counts into FILE, its last word.
COUNT = """
import numpy, sys, time
numbers = numpy.random.default_rng(1)
count = 0
file = open(sys.argv[2], "wb", buffering=0)
def counted(more):
    global count
    count += more
    file.seek(0); file.write(count.to_bytes(8, "little"))
"""
PROGRAMS = {
    # A search of the nearest of vectors of 512 numbers.
    "vector": """
import faiss
index = faiss.IndexFlatL2(512)
block = numbers.random((1024, 512), dtype=numpy.float32)
for step in range(int(sys.argv[1]) // 2): index.add(block + numpy.float32(step))
while True:
    index.search(block[count % 1024:count % 1024 + 1], 10)
    counted(1)
""",
    # As llama.cpp does for each token: all weights once, matrix by vector. It pauses so long that it works for the percent in FILE.duty.
    "llama": """
weights = numpy.ones((int(sys.argv[1]) << 8, 1024), numpy.float32)
token = numpy.ones(1024, numpy.float32)
while True:
    for row in range(0, len(weights), 1024):
        begin = time.thread_time()
        token[:] = (weights[row:row + 1024] @ token) / 1024
        counted(4)
        duty = int(open(sys.argv[2] + ".duty").read())
        if duty < 100: time.sleep((time.thread_time() - begin) * (100 - duty) / duty)
""",
    # As a recommendation model does: rows of a table of embeddings at random places, summed, through a layer.
    "dlrm": """
table = numpy.ones((int(sys.argv[1]) << 10, 256), numpy.float32)
layer = numpy.ones((256, 16), numpy.float32)
while True:
    for _ in range(4):
        rows = numbers.integers(0, len(table), 256)
        table[rows].reshape(8, 32, 256).sum(axis=1) @ layer
    counted(1)
""",
}

# A ring through the lines of 8 MiB in random order, followed by: mov rdi, [rdi]; dec rsi; jnz; ret. Processor time: other programs
# have their turns meanwhile.
CHASE = """
import ctypes, mmap, random, time
size, line, loads = 8 << 20, 64, 100000
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
order = list(range(size // line))
random.Random(1).shuffle(order)
words = memoryview(memory).cast("Q")
for here, there in zip(order, order[1:] + order[:1]): words[here * 8] = first + there * line
code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("488b3f48ffce75f8c3"))
chase = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
chase(first, loads)
begin = time.thread_time_ns()
chase(first, loads)
print((time.thread_time_ns() - begin) / loads)
"""


class Application:
    """A program in a control group of its own; `say` is what the service reads about it, none without the service."""

    def __init__(self, name: str, words: list[str], say: dict[str, object] | None, nodes: str = ALL_NODES) -> None:
        self.group = GROUPS / ("isolane-mem" if say else "plain") / name
        environment = {**os.environ, **LIBRARIES}
        if say:
            words = [sys.executable, str(LAB / "memory_caller.py"), str(SOCKET), json.dumps({"name": name, **say}), *words]
            self.process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
            return
        self.group.mkdir(parents=True, exist_ok=True)
        (self.group / "cpuset.mems").write_text(nodes)
        enter = lambda: (self.group / "cgroup.procs").write_text("0")  # noqa: E731
        self.process = subprocess.Popen(words, env=environment, preexec_fn=enter, stdout=subprocess.DEVNULL)

    def near_part(self) -> float:
        """Part of its anonymous memory that is near."""
        lines = (self.group / "memory.numa_stat").read_text().splitlines()
        words = next(line.split() for line in lines if line.startswith("anon "))
        near, far = (int(word.partition("=")[2]) for word in words[1:3])
        return near / (near + far)

    def processor_us(self) -> int:
        """Processor time so far."""
        return int((self.group / "cpu.stat").read_text().split()[1])

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()
        wait_until(lambda: not self.group.exists() or not (self.group / "cgroup.procs").read_text(), "the group is empty")


class Counting(Application):
    """One of PROGRAMS with so many MiB; the count has searches, or MiB that were read."""

    def __init__(self, name: str, mib: int, say: dict[str, object] | None, nodes: str = ALL_NODES) -> None:
        self.file = Path(f"/tmp/{name}.count")
        self.file.unlink(missing_ok=True)
        self.set_duty(100)
        super().__init__(name, [PYTHON, "-c", COUNT + PROGRAMS[name], str(mib), str(self.file)], say, nodes)
        wait_until(lambda: self.count() > 0 or self.process.poll() is not None, f"{name} works", 400)
        if self.process.poll() is not None:
            raise RuntimeError(f"{name} ended with {self.process.returncode}")

    def set_duty(self, percent: int) -> None:
        """Part of the time in which `llama` works."""
        new = self.file.with_suffix(".new")
        new.write_text(str(percent))
        new.rename(f"{self.file}.duty")

    def count(self) -> int:
        """So far."""
        return int.from_bytes(self.file.read_bytes(), "little") if self.file.exists() else 0


class Redis(Application):
    """The store with a client that reads many keys at once, any as often as any other."""

    def __init__(self, say: dict[str, object] | None, nodes: str = ALL_NODES) -> None:
        server = str(APPLICATIONS / "usr/bin/redis-server")
        words = [server, "--port", str(PORT), "--save", "", "--enable-debug-command", "yes"]
        super().__init__("redis", words, say, nodes)
        wait_until(lambda: listens(PORT), "redis listens")
        self.client = socket.create_connection(("127.0.0.1", PORT))
        self.fill(KEYS)
        self.reply = bytearray(len(f"*{KEYS_PER_REQUEST}\r\n") + KEYS_PER_REQUEST * (VALUE_BYTES + len(f"${VALUE_BYTES}\r\n\r\n")))

    def fill(self, count: int) -> None:
        """So many keys, all of which requests read."""
        self.client.sendall(f"DEBUG POPULATE {count} key {VALUE_BYTES}\r\n".encode())
        if self.client.recv(100) != b"+OK\r\n":
            raise RuntimeError("redis was not filled")
        numbers = random.Random(1)
        keys = ([f"key:{numbers.randrange(count)}" for _ in range(KEYS_PER_REQUEST)] for _ in range(300))
        self.requests = [f"MGET {' '.join(some)}\r\n".encode() for some in keys]

    def load(self, seconds: float) -> list[float]:
        """Requests one after the other; the time of each in s."""
        times = []
        begin = now = time.monotonic()
        while now - begin < seconds:
            self.client.sendall(self.requests[len(times) % len(self.requests)])
            if self.client.recv_into(self.reply, 0, socket.MSG_WAITALL) != len(self.reply):
                raise RuntimeError("redis answered less than was asked for")
            times.append(time.monotonic() - now)
            now += times[-1]
        return times

    def cost_us(self, seconds: float) -> float:
        """Processor time of a request, waits for memory included, under load for so long."""
        used = self.processor_us()
        times = self.load(seconds)
        return (self.processor_us() - used) / len(times)


def set_kernel(mode: str) -> None:
    """Stock, or the tiering on which Mercury stands too; pages are looked at every 0.1 s, not every second, to settle in seconds."""
    Path("/proc/sys/kernel/numa_balancing").write_text("1" if mode == "stock" else "2")
    Path("/sys/kernel/mm/numa/demotion_enabled").write_text("0" if mode == "stock" else "1")
    Path("/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms").write_text("100")
    # Where no page can leave, kswapd gives up until a page was reclaimed.
    try:
        (GROUPS / "memory.reclaim").write_text("1M")
    except BlockingIOError:
        print("less than 1 MiB was reclaimed", flush=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def weigh_khugepaged() -> None:
    """Gives khugepaged the weight of others.

    At nice 19 its virtual time runs 68 times as fast. Once it ran alone for a second, it is a minute ahead of the others, and the average
    with it is 0.25 s too high. A program that wakes is placed at this average, and waits until the others have reached it.
    """
    names = Path("/proc").glob("[0-9]*/comm")
    found = [int(name.parent.name) for name in names if name.read_text() == "khugepaged\n"]
    os.setpriority(os.PRIO_PROCESS, found[0], 0)


def make_groups() -> None:
    """The control groups of applications without the service."""
    (GROUPS / "cgroup.subtree_control").write_text("+memory +cpu +cpuset")
    (GROUPS / "plain").mkdir()
    (GROUPS / "plain/cgroup.subtree_control").write_text("+memory +cpu +cpuset")
    weigh_khugepaged()


def chase_ns(node: str) -> float:
    """Latency of a dependent load on a node."""
    group = GROUPS / "plain/chase"
    group.mkdir(exist_ok=True)
    (group / "cpuset.mems").write_text(node)
    enter = lambda: (group / "cgroup.procs").write_text("0")  # noqa: E731
    return float(subprocess.run([sys.executable, "-c", CHASE], preexec_fn=enter, capture_output=True, text=True, check=True).stdout)


def start_counters() -> subprocess.Popen[bytes]:
    """Counters of bandwidth where resctrl has them; sysfs permits no directory of that name, so a file system covers it."""
    aside = "/run/groups"
    for command in (f"mkdir {aside}", f"mount --move {GROUPS} {aside}", "mount -t tmpfs tmpfs /sys/fs", f"mkdir {GROUPS} {RESCTRL}", f"mount --move {aside} {GROUPS}"):
        subprocess.run(command.split(), check=True)
    (RESCTRL / "info/L3_MON").mkdir(parents=True)
    (RESCTRL / "info/L3_MON/mon_features").write_text("mbm_total_bytes\nmbm_local_bytes\n")
    for group in (RESCTRL, *(RESCTRL / f"mon_groups/isolane-mem-{number}" for number in range(1, COUNTED + 1))):
        (group / "mon_data/mon_L3_00").mkdir(parents=True)
        for name in ("tasks", *(f"mon_data/mon_L3_00/{name}" for name in COUNTERS)):
            (group / name).write_text("")
    counters = subprocess.Popen(["/lab/traffic", str(RESCTRL), str(COUNTED)])
    wait_until(lambda: counters.poll() is not None or bool((RESCTRL / "mon_data/mon_L3_00/mbm_total_bytes").read_text()), "bytes are counted")
    if counters.poll() is not None:
        raise RuntimeError("no counters of bandwidth")
    return counters


def counted_bytes(group: str = ".") -> tuple[int, int]:
    """Bytes of near and of far memory so far, of the machine or of a group."""
    near, total = (int((RESCTRL / group / "mon_data/mon_L3_00" / name).read_text()) for name in COUNTERS)
    return near, total - near
