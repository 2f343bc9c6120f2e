"""Containers in the lab: podman and runc, on the Debian root that lab/fetch made, with the cgroup that the kubelet gives a pod.

Runs inside the virtual machine; standard library only.
"""
from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("LAB_CACHE", "")) / "containers"
ENGINE = CACHE / "engine"
# Podman's own files, in memory.
STATE = Path("/run/lab-containers")
# The machine's files that give a container the Soft-RoCE devices.
VERBS = Path("/dev/infiniband")


def missing() -> str | None:
    """Why no container can run here, or None."""
    if not (CACHE / "root").is_dir():
        return "no root for containers in the cache (lab/fetch)"
    prepare()
    lacking = [name for name in ("podman", "runc", "conmon") if not found(name)]
    return f"not installed: {', '.join(lacking)} (lab/fetch)" if lacking else None


def found(name: str) -> str | None:
    """Path of a program of the engine. It may be unpacked in the cache; otherwise it is installed."""
    own = os.pathsep.join(str(ENGINE / folder) for folder in ("usr/bin", "usr/sbin", "usr/libexec/podman", "usr/lib/podman"))
    return shutil.which(name, path=own + os.pathsep + os.environ["PATH"])


def prepare() -> None:
    """Podman's settings: its programs, no network of its own, no events, and cgroups that it makes itself, as the kubelet does."""
    STATE.mkdir(exist_ok=True)
    libraries = [str(path) for path in (ENGINE / "usr/lib").glob("*-linux-gnu")]
    lines = [
        "[containers]", 'log_driver = "none"', 'seccomp_profile = ""',
        "[engine]", 'cgroup_manager = "cgroupfs"', 'events_logger = "none"', 'runtime = "runc"',
        f'conmon_path = ["{found("conmon")}"]', f'tmp_dir = "{STATE}/tmp"',
        "[engine.runtimes]", f'runc = ["{found("runc")}"]',
        "[network]", 'network_backend = "cni"',
    ]  # fmt: skip
    profile = ENGINE / "usr/share/containers/seccomp.json"
    if profile.exists():
        lines[2] = f'seccomp_profile = "{profile}"'
    else:
        del lines[2]
    (STATE / "containers.conf").write_text("\n".join(lines) + "\n")
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{STATE}/graph"\nrunroot = "{STATE}/run"\n'
    (STATE / "storage.conf").write_text(storage)
    os.environ["CONTAINERS_CONF"] = f"{STATE}/containers.conf"
    os.environ["CONTAINERS_STORAGE_CONF"] = f"{STATE}/storage.conf"
    if libraries:
        os.environ["ENGINE_LIBRARIES"] = os.pathsep.join(libraries)


def podman(*words: str) -> list[str]:
    """A command of podman, with the libraries that are unpacked in the cache."""
    libraries = os.environ.get("ENGINE_LIBRARIES")
    return [*(["env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []), str(found("podman")), *words]


class Container:
    """A container of a pod, in the foreground of a process of its own. `devices` are names of the Container Device Interface.

    All containers have the same root. runc leaves empty files there on which it has mounted: run a container without devices first.
    """

    def __init__(self, name: str, uid: str, devices: Sequence[str], command: Sequence[str]) -> None:
        self.name = name
        self.cgroup = Path("/sys/fs/cgroup/kubepods/burstable") / f"pod{uid}"
        self.log = Path(f"/tmp/{name}.log")
        self.cgroup.mkdir(parents=True, exist_ok=True)
        verbs = [f"--device={path}" for path in sorted(VERBS.iterdir()) if path.is_char_device()]
        words = podman(
            "run", "--rm", f"--name={name}", "--network=host", "--cgroups=no-conmon", "--ulimit=memlock=-1:-1", "--security-opt=label=disable",
            f"--cgroup-parent=/{self.cgroup.relative_to('/sys/fs/cgroup')}", *verbs,
            *(f"--device={device}" for device in devices), "--rootfs", f"{CACHE}/root", *command,
        )  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def text(self) -> str:
        """What the container has printed."""
        return self.log.read_text()

    def pids(self) -> list[int]:
        """Its processes, as the machine numbers them."""
        files = self.cgroup.rglob("cgroup.procs")
        return [int(word) for path in files for word in path.read_text().split()]

    def cgroups(self) -> list[str]:
        """The cgroups below that of the pod."""
        return [str(path) for path in self.cgroup.rglob("*") if path.is_dir()]


def left_mounts() -> list[str]:
    """Mounts of containers that are still there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(STATE) in line.split()[4] or str(CACHE) in line.split()[4]]
