"""The wires between emulated tiers: packets from one namespace to the next at a bounded rate and after a delay.

Problem: tiers on one machine need real bandwidth and delay between them, changeable and cuttable while traffic flows, also on
kernels without the `netem` queueing discipline. Method: each link is a TUN device in either namespace; this process moves
packets between the two. A direction is a queue that sends at `mbit_per_s` (packets leave one after the other; what would wait
longer than `QUEUE_S` is dropped, as a router does), and then a wire that takes `delay_ms`. A cut link drops everything.

Input, one JSON document a line on standard input: first {"links": [{"source": {"space", "device"}, "target": {...},
"mbit_per_s", "delay_ms"}, ...]}, answered by {"ready": true}; then {"link": index, "mbit_per_s", "delay_ms", "cut"}, each
answered by {"done": true}. It ends with its input, and its devices end with it.

Limits: one thread; on this project's machines about 40,000 packets a second, so packets are large (`MTU`). A rate is that of IP
packets, without Ethernet's framing. Needs root. TUN as in the kernel's Documentation/networking/tuntap.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import select
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

#: Bytes of a packet: an item of 258 KB is 29 packets.
MTU = 9000
#: What may wait before a link, in seconds of its rate; and bytes that may wait on any link, so that slow ones pass bursts.
QUEUE_S, QUEUE_BYTES = 0.2, 128 * 1024
#: Before everything that is not real time.
PRIORITY = -15

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000


@dataclass
class Direction:
    """From one device to the other."""

    target: int
    bytes_per_s: float
    delay_s: float
    cut: bool = False
    free_at: float = 0.0
    packets: int = 0
    dropped: int = 0

    def admit(self, length: int, now: float) -> float | None:
        """When a packet that comes now arrives, or None if it is dropped."""
        waits = max(self.free_at - now, 0.0)
        if self.cut or waits > max(QUEUE_S, QUEUE_BYTES / self.bytes_per_s):
            self.dropped += 1
            return None
        self.free_at = now + waits + length / self.bytes_per_s
        self.packets += 1
        return self.free_at + self.delay_s


@dataclass
class Relay:
    """All links of a lab."""

    directions: dict[int, Direction] = field(default_factory=dict)
    links: list[tuple[int, int]] = field(default_factory=list)
    due: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    count: int = 0

    def open(self, links: list[dict[str, Any]]) -> None:
        """Makes the devices."""
        for link in links:
            one, two = (open_device(link[end]["space"], link[end]["device"]) for end in ("source", "target"))
            rate, delay = link["mbit_per_s"] * 1e6 / 8, link["delay_ms"] / 1e3
            self.directions[one] = Direction(two, rate, delay)
            self.directions[two] = Direction(one, rate, delay)
            self.links.append((one, two))

    def change(self, command: dict[str, Any]) -> None:
        """Sets a link's rate, delay, or whether it is cut; what waits keeps its time."""
        for device in self.links[int(command["link"])]:
            direction = self.directions[device]
            if "mbit_per_s" in command:
                direction.bytes_per_s = float(command["mbit_per_s"]) * 1e6 / 8
            direction.delay_s = float(command.get("delay_ms", direction.delay_s * 1e3)) / 1e3
            direction.cut = bool(command.get("cut", direction.cut))

    def take(self, device: int) -> None:
        """Reads the packets that a namespace sends."""
        direction = self.directions[device]
        for _ in range(64):
            try:
                packet = os.read(device, MTU + 64)
            except BlockingIOError:
                return
            arrival = direction.admit(len(packet), time.monotonic())
            if arrival is not None:
                self.count += 1
                heapq.heappush(self.due, (arrival, self.count, direction.target, packet))

    def give(self) -> float | None:
        """Hands over what has arrived; returns the seconds until the next arrival."""
        while self.due:
            left = self.due[0][0] - time.monotonic()
            if left > 0.0:
                return left
            _, _, device, packet = heapq.heappop(self.due)
            try:
                os.write(device, packet)
            except OSError:  # the receiver's queue is full or its device is down: a lost packet
                continue
        return None


def open_device(space: str, name: str) -> int:
    """A TUN device in a namespace; the descriptor works from any other."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"namespace {space} cannot be entered")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    finally:
        libc.setns(home, _CLONE_NEWNET)
        os.close(there)
        os.close(home)
    return device


def main() -> None:
    """Runs until standard input ends."""
    with contextlib.suppress(OSError):
        # A wire does not wait for the machine: without this a busy one would show as a slow link.
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    relay = Relay()
    lines = sys.stdin.buffer
    relay.open(json.loads(lines.readline())["links"])
    print(json.dumps({"ready": True}), flush=True)
    descriptors = [lines.fileno(), *relay.directions]
    os.set_blocking(lines.fileno(), False)
    pending = b""
    while True:
        readable, _, _ = select.select(descriptors, [], [], relay.give())
        for device in readable:
            if device in relay.directions:
                relay.take(device)
                continue
            data = os.read(device, 65536)
            if not data:
                return
            *commands, pending = (pending + data).split(b"\n")
            for command in commands:
                relay.change(json.loads(command))
                print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main()
