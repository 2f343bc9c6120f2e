"""The two devices of the lab and the link between them: made, shaped, and watched while tenants use it.

Three views of the same traffic: bytes that leave an interface (`Rate`), what waits before the slow link (`LinkQueue`), and
bytes that arrive for each tenant (`Meter`). Runs inside the virtual machine; standard library only.
"""
from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proof import LAB, output, wait_until

if TYPE_CHECKING:
    from tenant import Tenant

# How a GID of an IPv4 address begins. `:ffff:` alone is also in that of a MAC address whose third byte is ff: fe80::a2ff:fe...
IPV4_GID = "0000:0000:0000:0000:0000:ffff:"

# The address of each device that lab/devices makes.
ADDRESS = {"r0": "10.7.0.1", "r1": "10.7.0.2", "s0": "10.8.0.1", "s1": "10.8.0.2"}


def devices(*options: str) -> None:
    """Makes r0 and r1 (see lab/devices), or shapes those that are there."""
    subprocess.run([LAB / "devices", *options], check=True)
    Meter.prepare()


def gid_index(device: str) -> int:
    """The index of the device's RoCEv2 GID for its IPv4 address; 0 for iWARP, which has no such GID.

    The kernel renews a device's GIDs when its interface changes state, so an entry may be absent for a moment.
    """
    port = Path("/sys/class/infiniband") / device / "ports/1"
    if (port.parent.parent / "node_type").read_text().startswith("4"):
        return 0
    found: list[int] = []

    def is_there() -> bool:
        found[:] = (index for index, gid, kind in gids(port) if gid.startswith(IPV4_GID) and "v2" in kind)
        return bool(found)

    try:
        wait_until(is_there, "GID")
    except TimeoutError:
        raise RuntimeError(f"{device} has no RoCEv2 GID for an IPv4 address, only {list(gids(port))}") from None
    return found[0]


def gids(port: Path) -> Iterator[tuple[int, str, str]]:
    """Index, GID and type of each entry of the port's table that is in use."""
    for entry in sorted((port / "gids").iterdir(), key=lambda path: int(path.name)):
        try:
            yield int(entry.name), entry.read_text().strip(), (port / "gid_attrs/types" / entry.name).read_text().strip()
        except OSError:
            continue


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
        """Starts again."""
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
                    raise OSError("the kernel does not report its queues")
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
    # Of the classifier that stays, the last one of a packet.
    STAYS = 65535

    @classmethod
    def prepare(cls) -> None:
        """Makes the place of the classifiers and one that matches nothing and stays, before there is traffic.

        The first classifier that is made and the last that is deleted make the kernel patch its own code. An emulated
        processor that runs that very code while another one patches it may see a breakpoint that is not expected any
        more ("Oops: int3" in __dev_queue_xmit or tc_run), and the machine ends.
        """
        if "clsact" not in output("tc", "qdisc", "show", "dev", cls.INTERFACE):
            subprocess.run(["modprobe", "-a", "sch_ingress", "cls_u32", "act_gact"], check=True)
            subprocess.run(["tc", "qdisc", "add", "dev", cls.INTERFACE, "clsact"], check=True)
            nothing = f"pref {cls.STAYS} protocol ip u32 match ip protocol 255 0xff action ok"
            subprocess.run(["tc", "filter", "add", "dev", cls.INTERFACE, "ingress", *nothing.split()], check=True)

    def __init__(self, tenants: Sequence[Tenant]) -> None:
        self.tenants = tenants
        old = {entry["pref"] for entry in self._classifiers()}
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
        """Starts again."""
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
            for action in entry.get("options", {}).get("actions", []):
                counts[entry["pref"] - 1] += action["stats"]["bytes"]
        return counts

    def _classifiers(self) -> list[dict[str, Any]]:
        """The tenants' classifiers with what they have counted."""
        shown = json.loads(output("tc", "-s", "-j", "filter", "show", "dev", self.INTERFACE, "ingress"))
        return [entry for entry in shown if entry["pref"] != self.STAYS]
