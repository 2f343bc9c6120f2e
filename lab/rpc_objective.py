#!/usr/bin/env python3
"""Measures how `isolane rpc enforce` holds the tail of a class on a link that gets one and a half times its rate.

As root, with `isolane` on the path: `chrt --rr 1 lab/rpc_objective.py [ROUNDS [CONTROL]]`, some two minutes per round. The link is a veth pair
between two network namespaces of this machine's kernel, which must have HTB. An emulated machine is too slow for it.

A client without any instrumentation sends requests of 10,000 bytes at random times over 64 connections; a reply of one byte ends
each. The link has 20 Mbit/s, of which an HTB guarantees 14 to the high class and 4 to the low one. Without the command all
requests are in the high class. With it, the command moves requests to the low class until those that stay keep the objective.
Times are the client's own, from the write to the reply; the class of a request is the code point of its socket after the write.
Phases take turns, so that a busy machine slows both. The low class has no objective.
CONTROL is TCP's congestion control; cubic without it. BBR paces a request at the rate that it estimated from requests in the low class.
A request that finds no idle connection is not sent. Prints a line per phase, and the medians.
"""
from __future__ import annotations

import json
import os
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = ("10.77.0.2", 7001)
HIGH, LOW = 46, 8
BYTES = 10_000
PACKETS = 7
CONNECTIONS = 64
LINK_BPS = 20_000_000
# Network namespaces at both ends; the client's process gets their names.
NEAR, FAR = (f"isolane-objective-{os.getpid()}-{end}" for end in ("near", "far"))
OFFERED = 1.5
# Per packet, and so for a request; of which percentile.
OBJECTIVE_MS = 5
PERCENTILE = 99
ROUNDS = 3
# The probability falls within seconds and rises by a hundredth in 3.5 s (the window of the algorithm).
WARM_UP_S, MEASURE_S = 30, 25
SETTINGS = f"""
[[class]]
name = "high"
dscp = {HIGH}
target_per_mtu = "{OBJECTIVE_MS}ms"
percentile = {PERCENTILE}

[[class]]
name = "low"
dscp = {LOW}
"""


def serve() -> None:
    """Replies one byte to each request."""
    selector = selectors.DefaultSelector()
    listener = socket.create_server(SERVER, backlog=CONNECTIONS)
    selector.register(listener, selectors.EVENT_READ)
    print("listens", flush=True)
    got: dict[socket.socket, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connection, selectors.EVENT_READ)
                got[connection] = 0
                continue
            connection = key.fileobj
            try:
                data = connection.recv(1 << 16)
            except ConnectionResetError:
                # A client that ends leaves replies unread.
                data = b""
            if not data:
                selector.unregister(connection)
                connection.close()
                continue
            got[connection] += len(data)
            if got[connection] == BYTES:
                got[connection] = 0
                connection.send(b"r")


def call(seconds: float, control: str) -> None:
    """Sends requests for so long; prints time in ms and code point of each that began after the warm-up."""
    selector = selectors.DefaultSelector()
    idle = []
    for _ in range(CONNECTIONS):
        connection = socket.socket()
        # A write never waits for room.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.connect(SERVER)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        idle.append(connection)
    chance = random.Random(1)
    rate = OFFERED * LINK_BPS / 8 / BYTES
    begin = time.monotonic()
    due = begin
    sent: dict[socket.socket, tuple[float, int]] = {}
    done = []
    while (now := time.monotonic()) < begin + seconds:
        while due <= now:
            due += chance.expovariate(rate)
            if not idle:
                # Otherwise the waiting requests would measure this program and not the link.
                continue
            connection = idle.pop(0)
            start = time.monotonic()
            connection.sendall(bytes(BYTES))
            sent[connection] = (start, connection.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2)
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            connection = key.fileobj
            connection.recv(1)
            start, point = sent.pop(connection)
            idle.append(connection)
            if start > begin + WARM_UP_S:
                done.append(((time.monotonic() - start) * 1e3, point))
    print(json.dumps(done))


def inside(space: str, *words: str) -> list[str]:
    """The command for a namespace."""
    return ["ip", "netns", "exec", space, *words]


def quantile(values: list[float], rank: float) -> float:
    """Of the sorted values, the one at this rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(rank / 100 * len(ordered)))]


@contextmanager
def link() -> Iterator[None]:
    """Two namespaces, and the link with its classes between them."""
    packet = 1514
    child = f"burst {2 * packet} cburst {2 * packet} quantum {packet} ceil {LINK_BPS}"
    match = "protocol ip prio 1 u32 match ip dsfield"
    lines = [
        f"ip netns add {NEAR}", f"ip netns add {FAR}",
        f"ip -n {NEAR} link add v type veth peer name v netns {FAR}",
        f"ip -n {NEAR} addr add 10.77.0.1/24 dev v", f"ip -n {FAR} addr add 10.77.0.2/24 dev v",
        f"ip -n {NEAR} link set v up gso_max_segs 1", f"ip -n {FAR} link set v up gso_max_segs 1",
        f"ip -n {NEAR} link set lo up", f"ip -n {FAR} link set lo up",
        f"tc -n {NEAR} qdisc add dev v root handle 1: htb default 3",
        f"tc -n {NEAR} class add dev v parent 1: classid 1:9 htb rate {LINK_BPS} burst {2 * packet} cburst {2 * packet} quantum {packet}",
        f"tc -n {NEAR} class add dev v parent 1:9 classid 1:1 htb rate 14mbit prio 0 {child}",
        f"tc -n {NEAR} class add dev v parent 1:9 classid 1:2 htb rate 4mbit prio 1 {child}",
        f"tc -n {NEAR} class add dev v parent 1:9 classid 1:3 htb rate 2mbit prio 0 {child}",
        f"tc -n {NEAR} filter add dev v parent 1: {match} {HIGH << 2:#04x} 0xfc flowid 1:1",
        f"tc -n {NEAR} filter add dev v parent 1: {match} {LOW << 2:#04x} 0xfc flowid 1:2",
    ]  # fmt: skip
    try:
        for line in lines:
            subprocess.run(line.split(), check=True)
        yield
    finally:
        for space in (NEAR, FAR):
            subprocess.run(["ip", "netns", "del", space], check=False)


@contextmanager
def group() -> Iterator[Path]:
    """A cgroup for the client."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    path = Path(next(words[1] for words in mounts if words[2] == "cgroup2")) / "rpc_enforce"
    path.mkdir(exist_ok=True)
    try:
        yield path
    finally:
        path.rmdir()


@contextmanager
def enforced(path: Path, folder: Path) -> Iterator[None]:
    """The command, from before the client connects."""
    settings = folder / "rpc.toml"
    settings.write_text(SETTINGS)
    words = ["isolane", "rpc", "enforce", str(settings), "--cgroup", str(path), "--port", f"{SERVER[1]}=high"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    try:
        # The first view.
        if not command.stdout.readline():
            raise SystemExit(f"isolane rpc enforce: status {command.wait()}")
        threading.Thread(target=command.stdout.read, daemon=True).start()
        yield
    finally:
        command.terminate()
        command.wait()


def phase(path: Path, control: str) -> tuple[list[float], list[float]]:
    """Times of the requests in the high class and in the low class; without the command all have the code point 0."""
    script = f"echo $$ > {path}/cgroup.procs && exec ip netns exec {NEAR} {sys.executable} {Path(__file__).resolve()} call {control}"
    done = json.loads(subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout)
    high = [ms for ms, point in done if point != LOW]
    low = [ms for ms, point in done if point == LOW]
    return high, low


def default_to_high(on: bool) -> None:
    """Without the command nobody marks packets: the link's classes then take unmarked packets for the high class."""
    words = f"tc -n {NEAR} filter {'add' if on else 'del'} dev v parent 1: protocol ip prio 2"
    match = " u32 match ip dsfield 0x00 0xfc flowid 1:1" if on else ""
    subprocess.run((words + match).split(), check=True)


def measure(rounds: int, control: str) -> None:
    """Both phases in turns, and the medians."""
    if not shutil.which("isolane"):
        raise SystemExit("lab/rpc_objective.py: no program isolane on the path: build it, and add its directory to PATH")
    limit = OBJECTIVE_MS * PACKETS
    found: dict[str, list[tuple[float, float, float]]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder, link(), group() as path:
        server = subprocess.Popen(inside(FAR, sys.executable, str(Path(__file__).resolve()), "serve"), stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            server.stdout.readline()
            for _ in range(rounds):
                for name in found:
                    if name == "without":
                        default_to_high(True)
                        high, low = phase(path, control)
                        default_to_high(False)
                    else:
                        with enforced(path, Path(folder)):
                            high, low = phase(path, control)
                    within = 100 * sum(ms <= limit for ms in high) / len(high)
                    share = 100 * len(high) / (len(high) + len(low))
                    found[name].append((quantile(high, PERCENTILE), within, share))
                    print(f"{name}: {summary(found[name][-1:])}", flush=True)
        finally:
            server.kill()
            server.wait()
    for name, phases in found.items():
        print(f"{name}, medians of {rounds}: {summary(phases)}")


def summary(phases: list[tuple[float, float, float]]) -> str:
    """Medians of the phases in words."""
    tail, within, share = (statistics.median(values) for values in zip(*phases, strict=True))
    limit = OBJECTIVE_MS * PACKETS
    return f"p{PERCENTILE} of the high class {tail:.1f} ms, {within:.2f} % within {limit} ms, {share:.1f} % of the requests in the high class"


if sys.argv[1:] == ["serve"]:
    serve()
elif sys.argv[1:2] == ["call"]:
    call(WARM_UP_S + MEASURE_S, sys.argv[2])
else:
    measure(int(sys.argv[1]) if sys.argv[1:] else ROUNDS, sys.argv[2] if sys.argv[2:] else "cubic")
