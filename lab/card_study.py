#!/usr/bin/env python3
"""The sender of `isolane nic study --card vhost`, inside the virtual machine: disciplines, flows and pings, in turns.

    lab/card_study.py ISOLANE FLOWS WARMUP_S SECONDS ROUNDS NAME...

A NAME is a queueing discipline below `mq`, or one with `+titan` or `+isolane` behind it: the same under `isolane nic attach`, or
under `isolane nic attach --latency`. Every round runs each once and begins with another one. Each run prints a line when its flows
are warm, and one with what only the sender knows; the card measures what lies between them. A last line ends the run.
"""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RECEIVER = "10.98.0.2"
PEER_ADDRESS = "52:54:00:98:00:02"
OPTIONS = {"titan": [], "isolane": ["--latency"]}
PING_EVERY_S = 0.05
# Python has no name for it.
SO_TIMESTAMP = 29
# Of each ring. Without this limit the kernel's own one grows on a busy host, whose emulated interrupts are late.
RING_BYTES_MAX = 131072


def run(*words: str) -> str:
    """Standard output of a command that must work."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def keep_patched() -> socket.socket:
    """Keeps switches in the kernel's code on: an emulated kernel crashes when it patches them under traffic.

    Pings switch the time stamps of packets on and off, and Titan's programs the filters of devices.
    """
    stamped = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stamped.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
    run("tc", "qdisc", "add", "dev", "lo", "clsact")
    for direction in ("egress", "ingress"):
        run("tc", "filter", "add", "dev", "lo", direction, "u32", "match", "u32", "0xffffffff", "0xffffffff")
    return stamped


def find_card() -> str:
    """The device of the virtio card, up, with all its queues and an address."""
    subprocess.run(["modprobe", "virtio_net"], check=False)
    for _ in range(100):
        for device in Path("/sys/class/net").iterdir():
            driver = device / "device/driver"
            if driver.exists() and driver.resolve().name == "virtio_net":
                queues = len(list((device / "queues").glob("tx-*")))
                run("ethtool", "-L", device.name, "combined", str(queues))
                run("ip", "addr", "add", "10.98.0.1/24", "dev", device.name)
                run("ip", "link", "set", device.name, "up")
                run("ip", "neigh", "replace", RECEIVER, "lladdr", PEER_ADDRESS, "dev", device.name)
                for limit in (device / "queues").glob("tx-*/byte_queue_limits/limit_max"):
                    limit.write_text(str(RING_BYTES_MAX))
                return device.name
        time.sleep(0.1)
    raise SystemExit("this machine has no virtio NIC, or its kernel no driver")


def set_discipline(device: str, kind: str) -> None:
    """`mq` with one discipline on each queue."""
    subprocess.run(["modprobe", f"sch_{kind}"], capture_output=True, check=False)
    run("tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "mq")
    queues = [line for line in run("tc", "class", "show", "dev", device).splitlines() if line.startswith("class mq 1:")]
    for queue in range(1, len(queues) + 1):
        run("tc", "qdisc", "replace", "dev", device, "parent", f"1:{queue:x}", kind)


def busy_s() -> float:
    """Busy time of this machine's processors since boot."""
    words = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(words[:8]) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")


def in_rings(device: str) -> int:
    """Bytes that the driver has given to the card and that have not left it."""
    files = Path(f"/sys/class/net/{device}/queues").glob("tx-*/byte_queue_limits/inflight")
    return max((int(file.read_text()) for file in files), default=0)


@contextmanager
def attached(isolane: str, device: str, ours: str) -> Iterator[None]:
    """Titan on the device, with its controller in the foreground: on a slow machine one in the background may start too late."""
    if not ours:
        yield
        return
    words = [isolane, "nic", "attach", device, "--foreground", *OPTIONS[ours]]
    controller = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    if not controller.stdout or not controller.stdout.readline():
        raise SystemExit(f"{' '.join(words)}: status {controller.wait()}")
    yield
    words = [isolane, "nic", "status", device, "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    # Status 1 says that the programs step aside.
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(words)}: status {done.returncode}: {done.stderr.strip()}")
    status = json.loads(done.stdout)
    print(f"card events {json.dumps(status['events'])}", flush=True)
    if status["aside"]:
        print(f"card aside {', '.join(f'{name} {value}' for name, value in status['aside'].items())}", flush=True)
    elif status["events"]["stood_aside"]:
        print(f"card aside for {status['events']['stood_aside']} packets", flush=True)
    elif not status["events"]["assigned"]:
        print("card aside from the beginning: they assigned no packet", flush=True)
    controller.terminate()
    controller.communicate(timeout=120)


def measure(device: str, name: str, number: int, flows: int, warmup: float, seconds: float) -> None:
    """One run: flows, and pings beside them."""
    words = ["iperf3", "-c", RECEIVER, "-P", str(flows), "-t", str(int(warmup + seconds + 1)), "-i", "0"]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(warmup)
    count = int(seconds / PING_EVERY_S)
    words = ["ping", "-n", "-i", str(PING_EVERY_S), "-s", "1000", "-c", str(count), "-W", "2", RECEIVER]
    print(f"card begin {number} {name}", flush=True)
    before, begin = busy_s(), time.monotonic()
    pings = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    most = 0
    while time.monotonic() < begin + seconds:
        most = max(most, in_rings(device))
        time.sleep(0.1)
    busy, length = busy_s() - before, time.monotonic() - begin
    if client.poll() is not None:
        raise SystemExit(f"{name}: iperf3 ended early: {client.communicate()[0]}")
    figures = {"cpu_percent": 100 * busy / length, "ring_bytes_max": most}
    print(f"card end {json.dumps(figures)}", flush=True)
    text = pings.communicate(timeout=60)[0]
    times = [float(line.split("time=")[1].split()[0]) for line in text.splitlines() if "time=" in line]
    # A ping without an answer took at least as long as the program waits.
    times += [2000.0] * (count - len(times))
    print(f"card pings {json.dumps(times)}", flush=True)
    said = client.communicate(timeout=120)[0]
    if client.returncode:
        raise SystemExit(f"{name}: iperf3: status {client.returncode}: {said.strip()}")


def main() -> None:
    """Rounds of all names."""
    isolane, flows, warmup, seconds, rounds, *names = sys.argv[1:]
    stamped = keep_patched()
    device = find_card()
    for number in range(1, int(rounds) + 1):
        first = (number - 1) % len(names)
        for name in names[first:] + names[:first]:
            kind, _, ours = name.partition("+")
            set_discipline(device, kind)
            with attached(isolane, device, ours):
                measure(device, name, number, int(flows), float(warmup), float(seconds))
            print("card done", flush=True)
    stamped.close()


if __name__ == "__main__":
    main()
