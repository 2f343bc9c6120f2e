"""The Python clients and servers of `isolane rpc lab`: grpcio and grpc.aio.

Reads one JSON document a line on stdin and answers on stdout; crates/rpc/demo/src/job.rs describes them. Calls are issued when
they are due, whether earlier ones were answered or not. Times are microseconds after the start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import grpc.aio

from isolane import aio, rpc

SERVICE, METHOD = "isolane.lab.Lab", "Write"
PATH = f"/{SERVICE}/{METHOD}"
CONNECT_S = 20.0
#: Threads of the grpcio server: enough that the processor, not their number, is what limits it.
THREADS = 16

Job = dict[str, Any]


def read() -> Job:
    line = sys.stdin.readline()
    if not line:
        sys.exit("isolane.lab: stdin ended before a document")
    document: Job = json.loads(line)
    return document


def write(document: Job) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def wait_for_end() -> None:
    """Returns when the controller closes stdin, or is gone."""
    while sys.stdin.readline():
        pass


def leave_with_controller() -> None:
    def watch() -> None:
        wait_for_end()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


def settings(job: Job) -> str:
    """The job's admission as the settings file that all languages read."""
    admission = job["admission"]
    mode = "off" if admission is None else "shadow" if admission["shadow"] else "enforce"
    lines = [f'mode = "{mode}"']
    if admission is not None:
        lines.append(f"mtu_bytes = {admission['mtu_bytes']}")
    for number, dscp in enumerate(job["dscp"]):
        lines += ["[[class]]", f'name = "class-{number}"', f"dscp = {dscp}"]
        if number + 1 == len(job["dscp"]):
            break
        if admission is None:
            lines.append('target_per_mtu = "1s"')
            continue
        one = admission["classes"][number]
        lines += [
            f'target_per_mtu = "{max(round(one["target_per_mtu_us"] * 1000), 1)}ns"',
            f"percentile = {float(one['percentile'])!r}",
            f"alpha = {float(one['increment']):.9f}",
            f"beta = {float(one['decrement_per_mtu']):.9f}",
            f"floor = {float(one['floor']):.9f}",
        ]
    return "\n".join(lines) + "\n"


def arrivals(job: Job) -> Iterator[tuple[int, int]]:
    """A Poisson stream that runs only while a burst lasts: when, and in which class."""
    draw = random.Random(job["seed"])
    classes = range(len(job["mix"]))
    clock = 0.0
    while True:
        clock += draw.expovariate(job["burst_calls_per_s"]) * 1e6
        bursts, rest = divmod(int(clock), job["burst_us"])
        at = bursts * job["period_us"] + rest
        if at >= job["issue_us"]:
            return
        yield at, draw.choices(classes, job["mix"])[0]


class Results:
    """What a client saw; calls end in threads of grpcio."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.issued = self.failed = self.late_us_max = 0
        self.first_error: str | None = None
        self.calls: list[list[int]] = []

    def issue(self, late_us: int) -> None:
        with self.lock:
            self.issued += 1
            self.late_us_max = max(self.late_us_max, late_us)

    def end(self, outcome: rpc.Outcome | None, at_us: int, took_s: float, error: str | None) -> None:
        with self.lock:
            if error is not None or outcome is None:
                self.failed += 1
                self.first_error = self.first_error or error or "no outcome"
                return
            downgraded = int(outcome.downgraded or outcome.would_downgrade)
            self.calls.append([outcome.asked, outcome.ran, downgraded, at_us, int(took_s * 1e6)])

    def ended(self) -> int:
        with self.lock:
            return self.failed + len(self.calls)

    def document(self, job: Job, admission: rpc.Admission) -> Job:
        with self.lock:
            controlled = len(job["admission"]["classes"]) if job["admission"] else 0
            return {
                "issued": self.issued,
                "failed": self.failed,
                "unanswered": self.issued - self.failed - len(self.calls),
                "first_error": self.first_error,
                "late_us_max": self.late_us_max,
                "probability": [admission.probability(job["server"], number) for number in range(controlled)],
                "calls": list(self.calls),
            }


def client(job: Job) -> None:
    admission = rpc.Admission(settings(job))
    inner = rpc.ClassChannel(job["server"], admission)
    inner.connect(CONNECT_S)
    channel = grpc.intercept_channel(inner, rpc.AdmissionInterceptor(admission, job["server"]))
    method = channel.unary_unary(PATH)
    write({"ready": True})
    start = read()["start_unix_us"] / 1e6
    leave_with_controller()
    begin = time.perf_counter() + start - time.time()
    results = Results()
    payload = bytes(job["call_bytes"])
    for at_us, asked in arrivals(job):
        due = begin + at_us / 1e6
        time.sleep(max(due - time.perf_counter(), 0))
        now = time.perf_counter()
        late_us = max(int((now - due) * 1e6), 0)
        results.issue(late_us)
        with rpc.asking(asked):
            call = method.future(payload)

        def ended(done: Any, at_us: int = at_us + late_us, now: float = now) -> None:
            error = None if done.code() == grpc.StatusCode.OK else str(done.details())
            results.end(rpc.outcome(done), at_us, time.perf_counter() - now, error)

        call.add_done_callback(ended)
    end = begin + (job["issue_us"] + job["drain_us"]) / 1e6
    while results.ended() < results.issued and time.perf_counter() < end:
        time.sleep(0.01)
    write(results.document(job, admission))
    # Calls without an answer must not hold the program.
    sys.stdout.flush()
    os._exit(0)


def server(job: Job) -> None:
    counts = {"calls": 0, "bytes": 0, "downgraded": 0}
    lock = threading.Lock()

    def handle(payload: bytes, context: grpc.ServicerContext) -> bytes:
        down = rpc.downgraded_from(context) is not None
        with lock:
            counts["calls"] += 1
            counts["bytes"] += len(payload)
            counts["downgraded"] += down
        return b""

    serve = grpc.server(futures.ThreadPoolExecutor(THREADS))
    serve.add_generic_rpc_handlers((handlers(handle),))
    serve.add_insecure_port(job["listen"])
    serve.start()
    write({"ready": True})
    wait_for_end()
    serve.stop(0).wait()
    write(counts)


def handlers(handle: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(SERVICE, {METHOD: grpc.unary_unary_rpc_method_handler(handle)})


async def client_aio(job: Job) -> None:
    loop = asyncio.get_running_loop()
    admission = rpc.Admission(settings(job))
    channel = aio.channel(job["server"], admission)
    await asyncio.wait_for(channel.channel_ready(), CONNECT_S)
    method = channel.unary_unary(PATH)
    write({"ready": True})
    start = (await loop.run_in_executor(None, read))["start_unix_us"] / 1e6
    leave_with_controller()
    begin = time.perf_counter() + start - time.time()
    results = Results()
    payload = bytes(job["call_bytes"])

    async def one(asked: int, at_us: int) -> None:
        now = time.perf_counter()
        error = None
        with rpc.asking(asked) as current:
            try:
                await method(payload)
            except grpc.RpcError as failed:
                error = str(failed)
        results.end(current.outcome, at_us, time.perf_counter() - now, error)

    tasks = []
    for at_us, asked in arrivals(job):
        due = begin + at_us / 1e6
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        late_us = max(int((time.perf_counter() - due) * 1e6), 0)
        results.issue(late_us)
        tasks.append(loop.create_task(one(asked, at_us + late_us)))
    end = begin + (job["issue_us"] + job["drain_us"]) / 1e6
    if tasks:
        await asyncio.wait(tasks, timeout=max(end - time.perf_counter(), 0))
    write(results.document(job, admission))
    sys.stdout.flush()
    os._exit(0)


async def server_aio(job: Job) -> None:
    counts = {"calls": 0, "bytes": 0, "downgraded": 0}

    async def handle(payload: bytes, context: Any) -> bytes:
        counts["calls"] += 1
        counts["bytes"] += len(payload)
        counts["downgraded"] += rpc.downgraded_from(context) is not None
        return b""

    serve = grpc.aio.server()
    serve.add_generic_rpc_handlers((handlers(handle),))
    serve.add_insecure_port(job["listen"])
    await serve.start()
    write({"ready": True})
    await asyncio.get_running_loop().run_in_executor(None, wait_for_end)
    await serve.stop(0)
    write(counts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="isolane.lab", description="A client or server of `isolane rpc lab`, which starts it.")
    parser.add_argument("--interface", choices=["grpcio", "aio"], default="grpcio")
    parser.add_argument("role", choices=["client", "server"])
    arguments = parser.parse_args()
    job = read()
    if arguments.interface == "aio":
        asyncio.run(client_aio(job) if arguments.role == "client" else server_aio(job))
    elif arguments.role == "client":
        client(job)
    else:
        server(job)


if __name__ == "__main__":
    main()
