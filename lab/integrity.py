"""Random verbs between two devices, every byte and every completion compared with a model.

    /usr/bin/python3 lab/integrity.py SEED SECONDS GID_INDEX

One process holds both ends: the requester on r0, the responder on r1. A batch is one to eight work requests of random
verb, size (1 byte to 1 MiB), scatter list, flags and chaining. The model is two byte strings to which the work requests are
applied in order. Compared are both memories after each batch, and identifiers, order, status, lengths and immediate
data of all completions. Every tenth batch ends with a request that the responder must refuse: exactly one completion
per request has to come, in order, the refused one and those after it with an error.
Prints one line of JSON; ends with a traceback on the first difference.
"""
from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

MIB = 1 << 20
MEMORY = 8 * MIB
RECEIVE_AT, RECEIVE_STEP, RECEIVE_MAX = 6 * MIB, 128 << 10, 16
MESSAGE_MAX = 1 * MIB
BATCH_MAX = 8
REQUESTS_MIN = 20
INLINE_MAX = 64
SGE_MAX = 4
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
SENDS = (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM)
# How long a batch may take, and for how long the check continues once it is late, to distinguish slow from stuck.
PATIENCE_S, AFTERWARDS_S = 45, 30
# The link loses nothing (lab/devices), so nothing has to be sent twice; but Soft-RoCE may forget to go on, and its timer, of
# 17 s (4 us * 2^22) here, wakes it. It runs on from earlier messages and would fire at new ones that are under way; what is
# then sent again, a queue pair that has refused a request answers no more. So none grows older than RENEW_S.
TIMEOUT, RENEW_S = 22, 6
CONTROL = "/run/isolane/control/isolaned.sock"
WITH_IMMEDIATE = (e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_SEND_WITH_IMM)
VERBS = (e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_RDMA_WRITE_WITH_IMM, *SENDS, e.IBV_WR_ATOMIC_FETCH_AND_ADD)


class Late(AssertionError):
    """Completions that did not come in time."""


class End:
    """A device with registered memory and completion queues, and one queue pair at a time."""

    def __init__(self, device: str, gid_index: int) -> None:
        self.context = Context(name=device)
        self.gid_index = gid_index
        self.pd = PD(self.context)
        self.mr = MR(self.pd, MEMORY, ACCESS)
        self.queue = CQ(self.context, 256)

    def open(self, signal_all: bool, depth: int) -> None:
        """A fresh queue pair."""
        limits = QPCap(depth, 64, SGE_MAX, 1, INLINE_MAX)
        initial = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=limits, sq_sig_all=signal_all)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ACCESS
        self.pair = QP(self.pd, initial, attributes)

    def connect(self, other: End) -> None:
        """To the other end's queue pair."""
        attributes = QPAttr(port_num=1)
        attributes.path_mtu = e.IBV_MTU_4096
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 4
        attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 12, TIMEOUT, 7, 7
        attributes.qp_access_flags = ACCESS
        route = GlobalRoute(dgid=other.context.query_gid(1, other.gid_index), sgid_index=self.gid_index)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route, dlid=0)
        attributes.dest_qp_num = other.pair.qp_num
        self.pair.to_rts(attributes)

    def memory(self) -> bytes:
        """All of it."""
        return self.mr.read(MEMORY, 0)

    def fill(self, data: bytes) -> None:
        """All of it."""
        self.mr.write(data, MEMORY, 0)

    def poll(self, count: int, seconds: float) -> list:
        """As many completions, waiting so long; then looks whether there is one too many."""
        found: list = []
        end = time.monotonic() + seconds
        while len(found) < count:
            found += self.queue.poll(16)[1]
            if time.monotonic() > end:
                raise Late(f"{len(found)} of {count} completions after {seconds} s")
        found += self.queue.poll(16)[1]
        assert len(found) == count, f"{len(found)} completions, {count} expected"
        return found


@dataclass
class Request:
    """One work request, as the model sees it."""

    identifier: int
    verb: int
    length: int
    pieces: list[tuple[int, int]]
    remote: int
    signalled: bool
    flags: int
    immediate: int
    refused: bool = False


class Trial:
    """The two ends and the model."""

    def __init__(self, seed: int, gid_index: int) -> None:
        self.chance = random.Random(seed)
        self.near, self.far = End("r0", gid_index), End("r1", gid_index)
        self.near_model = bytearray(self.chance.randbytes(MEMORY))
        self.far_model = bytearray(self.chance.randbytes(MEMORY))
        self.near.fill(bytes(self.near_model))
        self.far.fill(bytes(self.far_model))
        self.identifier = 0
        self.counts = {"batches": 0, "requests": 0, "bytes": 0, "refusals": 0}
        self.reopen()

    def reopen(self) -> None:
        """Fresh queue pairs with other settings."""
        self.signal_all = self.chance.random() < 0.3
        self.depths = [self.chance.choice([BATCH_MAX, 16, 64]) for _ in range(2)]
        self.renew()

    def renew(self) -> None:
        """Fresh queue pairs with the same settings."""
        for end, depth in zip((self.near, self.far), self.depths):
            end.open(self.signal_all, depth)
        self.near.connect(self.far)
        self.far.connect(self.near)
        self.opened = time.monotonic()

    def batch(self, refuse: bool) -> None:
        """Posts, waits, compares."""
        room = self.local_room()
        requests = [self.request(next(room)) for _ in range(self.chance.randint(1, BATCH_MAX))]
        requests[-1].signalled = True
        refused_at = len(requests)
        if refuse:
            refused_at = self.chance.randrange(len(requests))
            requests[refused_at].refused = True
            requests[refused_at].verb = e.IBV_WR_RDMA_WRITE
            requests[refused_at].flags &= ~e.IBV_SEND_INLINE
        receivers = [r for r in requests[:refused_at] if r.verb in SENDS or r.verb in WITH_IMMEDIATE]
        for number, request in enumerate(receivers):
            element = SGE(self.far.mr.buf + RECEIVE_AT + number * RECEIVE_STEP, RECEIVE_STEP, self.far.mr.lkey)
            self.far.pair.post_recv(RecvWR(wr_id=request.identifier, num_sge=1, sg=[element]))
        self.begun = time.monotonic()
        self.post(requests)
        self.posted = time.monotonic()
        try:
            self.check_near(requests, refused_at)
            self.check_far(receivers)
        except Late:
            self.explain(requests, refused_at)
            raise
        for number, request in enumerate(requests[:refused_at]):
            self.apply(request, receivers.index(request) if request in receivers else 0)
        self.counts["batches"] += 1
        self.counts["requests"] += len(requests)
        self.counts["bytes"] += sum(request.length for request in requests[:refused_at])
        # Requests behind a refused one must not have changed anything at the far end.
        if bytes(self.far_model) != self.far.memory():
            raise AssertionError(f"the responder's memory differs after {requests}")
        if bytes(self.near_model) != self.near.memory():
            raise AssertionError(f"the requester's memory differs after {requests}")
        if refuse:
            self.counts["refusals"] += 1
            self.reopen()

    def explain(self, requests: list[Request], refused_at: int) -> None:
        """All that may say why nothing came: the batch, both ends, the devices, the link and isolaned, then what came late."""
        say = lambda *words: print(*words, file=sys.stderr, flush=True)  # noqa: E731
        now = time.monotonic()
        say(f"batch {self.counts['batches']}, refused at {refused_at}: posting took {self.posted - self.begun:.3f} s,"
            f" {now - self.posted:.3f} s ago; signal_all {self.signal_all}")  # fmt: skip
        for request in requests:
            say(f"  {request}")
        for name, end in (("r0", self.near), ("r1", self.far)):
            attributes = end.pair.query(e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_RQ_PSN)[0]
            say(f"  {name}: queue pair {end.pair.qp_num} in state {attributes.qp_state},"
                f" sq_psn {attributes.sq_psn}, rq_psn {attributes.rq_psn}")  # fmt: skip
        for words in ("rdma statistic show link", "rdma resource show qp", "tc -s qdisc show", "cat /proc/loadavg"):
            answer = subprocess.run(words.split(), capture_output=True, text=True, check=False)
            say(f"# {words}\n{answer.stdout}{answer.stderr}")
        say(f"# isolaned\n{snapshot()}")
        end_at = now + AFTERWARDS_S
        while time.monotonic() < end_at:
            for name, end in (("r0", self.near), ("r1", self.far)):
                for completion in end.queue.poll(16)[1]:
                    say(f"  {time.monotonic() - self.posted:.3f} s: {name} {completion.wr_id} status {completion.status}")
        for words in ("rdma statistic show link", "tc -s qdisc show"):
            answer = subprocess.run(words.split(), capture_output=True, text=True, check=False)
            say(f"# {words}, {AFTERWARDS_S} s later\n{answer.stdout}{answer.stderr}")
        say(f"# isolaned {AFTERWARDS_S} s later\n{snapshot()}")

    def local_room(self):
        """Places for messages that do not overlap: a fetched value must not change what another request sends."""
        places = list(range(0, RECEIVE_AT - MESSAGE_MAX, (RECEIVE_AT - MESSAGE_MAX) // BATCH_MAX))
        self.chance.shuffle(places)
        return iter(places)

    def request(self, place: int) -> Request:
        """A random one whose local bytes begin at the place."""
        chance = self.chance
        step = (RECEIVE_AT - MESSAGE_MAX) // BATCH_MAX
        verb = chance.choice(VERBS)
        longest = RECEIVE_STEP if verb in SENDS else min(step, MESSAGE_MAX)
        length = max(1, min(longest, int(2 ** chance.uniform(0, 20))))
        remote = chance.randrange(RECEIVE_AT - length)
        if verb == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
            length, remote = 8, remote & ~7
        cuts = sorted(chance.randrange(1, length) for _ in range(chance.randrange(SGE_MAX))) if length > 8 else []
        edges = sorted({0, length, *cuts})
        pieces = [(place + a, b - a) for a, b in zip(edges, edges[1:])]
        flags = e.IBV_SEND_SOLICITED if chance.random() < 0.2 else 0
        flags |= e.IBV_SEND_FENCE if chance.random() < 0.2 else 0
        inline = verb not in (e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD) and length <= INLINE_MAX
        flags |= e.IBV_SEND_INLINE if inline and chance.random() < 0.5 else 0
        self.identifier += 1
        signalled = self.signal_all or chance.random() < 0.6
        return Request(self.identifier, verb, length, pieces, remote, signalled, flags, chance.randrange(1 << 32))

    def post(self, requests: list[Request]) -> None:
        """In chains of random length."""
        words = []
        for request in requests:
            elements = [SGE(self.near.mr.buf + at, size, self.near.mr.lkey) for at, size in request.pieces]
            flags = request.flags | (e.IBV_SEND_SIGNALED if request.signalled else 0)
            word = SendWR(
                wr_id=request.identifier, opcode=request.verb, num_sge=len(elements), sg=elements, send_flags=flags,
                imm_data=request.immediate,
            )  # fmt: skip
            key = self.far.mr.rkey ^ (0xFFFF00 if request.refused else 0)
            if request.verb == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
                word.set_wr_atomic(key, self.far.mr.buf + request.remote, request.immediate, 0)
            elif request.verb not in SENDS:
                word.set_wr_rdma(key, self.far.mr.buf + request.remote)
            words.append(word)
        while words:
            chain = [words.pop(0) for _ in range(min(len(words), self.chance.randint(1, 4)))]
            for first, second in zip(chain, chain[1:]):
                first.next_wr = second
            self.near.pair.post_send(chain[0])

    def check_near(self, requests: list[Request], refused_at: int) -> None:
        """Signalled requests complete in order; from a refused one on all do, with errors."""
        expected = [r for n, r in enumerate(requests) if r.signalled or n >= refused_at]
        found = self.near.poll(len(expected), PATIENCE_S)
        assert [c.wr_id for c in found] == [r.identifier for r in expected], (
            f"completions {[c.wr_id for c in found]} for {[r.identifier for r in expected]}"
        )
        for completion, request in zip(found, expected):
            at = requests.index(request)
            good = completion.status == e.IBV_WC_SUCCESS
            assert good == (at < refused_at), f"status {completion.status} of {request}"
            if at > refused_at:
                assert completion.status == e.IBV_WC_WR_FLUSH_ERR, f"status {completion.status} behind a refused one"

    def check_far(self, receivers: list[Request]) -> None:
        """What was received, with length and immediate data."""
        for completion, request in zip(self.far.poll(len(receivers), PATIENCE_S) if receivers else [], receivers):
            assert completion.status == e.IBV_WC_SUCCESS, f"receive status {completion.status} of {request}"
            assert completion.wr_id == request.identifier, f"received {completion.wr_id} for {request}"
            assert completion.byte_len == request.length, f"received {completion.byte_len} bytes of {request}"
            if request.verb in WITH_IMMEDIATE:
                swapped = int.from_bytes(request.immediate.to_bytes(4, "little"), "big")
                assert completion.imm_data in (request.immediate, swapped), f"immediate {completion.imm_data} of {request}"

    def apply(self, request: Request, receive: int) -> None:
        """Does to the model what the request does to memory."""
        remote = request.remote
        if request.verb == e.IBV_WR_RDMA_READ:
            self.scatter(request, self.far_model[remote : remote + request.length])
        elif request.verb == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
            before = self.far_model[remote : remote + 8]
            after = (int.from_bytes(before, "little") + request.immediate) % (1 << 64)
            self.far_model[remote : remote + 8] = after.to_bytes(8, "little")
            self.scatter(request, before)
        else:
            data = b"".join(self.near_model[at : at + size] for at, size in request.pieces)
            start = RECEIVE_AT + receive * RECEIVE_STEP if request.verb in SENDS else remote
            self.far_model[start : start + len(data)] = data

    def scatter(self, request: Request, data: bytes | bytearray) -> None:
        """Into the pieces, in order."""
        done = 0
        for at, size in request.pieces:
            self.near_model[at : at + size] = data[done : done + size]
            done += size


def snapshot() -> str:
    """The sessions, leases and queue pairs of isolaned, where it runs."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(5)
            control.connect(CONTROL)
            control.sendall(b"GET /snapshot HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: control.recv(65536), b"")).decode().split("\r\n\r\n", 1)[-1]
        shown = json.loads(text)
        for device in shown["devices"]:
            del device["figures"]
        parts = [shown["daemon"], *shown["devices"], *shown["sessions"]]
        return f"{shown['now_ns']} ns\n" + "\n".join(json.dumps(part) for part in parts)
    except (OSError, ValueError) as error:
        return f"none: {error}"


def main() -> None:
    """Runs batches until the time is over and at least REQUESTS_MIN requests were made: a busy machine needs longer."""
    seed, seconds, gid_index = (int(word) for word in sys.argv[1:])
    trial = Trial(seed, gid_index)
    end = time.monotonic() + seconds
    while time.monotonic() < end or trial.counts["requests"] < REQUESTS_MIN:
        if time.monotonic() - trial.opened > RENEW_S:
            trial.renew()
        trial.batch(refuse=trial.counts["batches"] % 10 == 9)
        if trial.counts["batches"] % 25 == 0:
            trial.reopen()
    print(json.dumps(trial.counts))


if __name__ == "__main__":
    main()
