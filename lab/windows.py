"""Memory windows between two devices: binding, use, both ways of invalidation, every byte and every status compared.

    /usr/bin/python3 lab/windows.py SEED ROUNDS GID_INDEX

A round has fresh queue pairs. The responder (r1) posts one chain: a large WRITE, the binding of a window of type 2 to a random
range, and a SEND with the key. The requester (r0) posts another: a WRITE and a READ through the window, and a message that ends
the window's life (`remote`: SEND with invalidation; `local`: a plain SEND, after which the responder invalidates). In the third kind
of round, `forbidden`, the window is for reading, and a WRITE follows the READ. A device that let a binding or an invalidation overtake
the work before it would fail a good request. Then a WRITE with the dead key must be refused and leave the memory as it was.
Limits: Soft-RoCE checks the range of the registration, not the window's, so no request goes past a window here.
Prints one line of JSON, whose `outcomes` is a digest of every status and all memory; ends with a traceback on a difference.
"""
from __future__ import annotations

import hashlib
import json
import random
import sys

import pyverbs.enums as e
from integrity import ACCESS, MEMORY, PATIENCE_S, End
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.wr import SGE, RecvWR, SendWR

RECEIVE_AT, RECEIVE_BYTES = MEMORY - 4096, 4096
BULK_AT, BULK_MAX = 4 << 20, 512 << 10
WINDOW_MAX = 512 << 10
ENDINGS = ("remote", "local", "forbidden")
GOOD, REFUSED = e.IBV_WC_SUCCESS, e.IBV_WC_REM_ACCESS_ERR


class Trial:
    """The two ends, and their memories as they should be."""

    def __init__(self, seed: int, gid_index: int) -> None:
        self.chance = random.Random(seed)
        self.near, self.far = End("r0", gid_index), End("r1", gid_index)
        # Windows need a registration that allows them.
        self.far.mr = MR(self.far.pd, MEMORY, ACCESS | e.IBV_ACCESS_MW_BIND)
        self.models = [bytearray(self.chance.randbytes(MEMORY)) for _ in range(2)]
        for end, model in zip((self.near, self.far), self.models):
            end.fill(bytes(model))
        self.digest = hashlib.sha256()
        self.counts = dict.fromkeys(("rounds", "requests", "bytes", *ENDINGS), 0)

    def round(self, ending: str) -> None:
        """Binds, uses, ends, tries again."""
        for end in (self.near, self.far):
            end.open(False, 16)
        self.near.connect(self.far)
        self.far.connect(self.near)
        for end in (self.near, self.far):
            element = SGE(end.mr.buf + RECEIVE_AT, RECEIVE_BYTES, end.mr.lkey)
            end.pair.post_recv(RecvWR(wr_id=900, num_sge=1, sg=[element]))
        with MW(self.far.pd, e.IBV_MW_TYPE_2) as window:
            start, length, key = self.bind(window, ending)
            self.use(start, length, key, ending)
            self.refuse(start, key)
        self.compare()
        self.counts["rounds"] += 1
        self.counts[ending] += 1

    def bind(self, window: MW, ending: str) -> tuple[int, int, int]:
        """The responder's chain: where the window is, how long, and its key."""
        length = self.chance.randint(4096, WINDOW_MAX)
        start = self.chance.randrange(BULK_AT - length)
        bulk = self.chance.randint(65536, BULK_MAX)
        first = self.work(self.far, 1, e.IBV_WR_RDMA_WRITE, BULK_AT, bulk)
        first.set_wr_rdma(self.near.mr.rkey, self.near.mr.buf + BULK_AT)
        access = e.IBV_ACCESS_REMOTE_READ | (0 if ending == "forbidden" else e.IBV_ACCESS_REMOTE_WRITE)
        second = SendWR(wr_id=2, opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED)
        second.set_bind_wr(window, MWBindInfo(self.far.mr, self.far.mr.buf + start, length, access))
        key = second.rkey
        third = self.work(self.far, 3, e.IBV_WR_SEND, BULK_AT, 64)
        first.next_wr, second.next_wr = second, third
        self.far.pair.post_send(first)
        self.expect(self.far, [(1, GOOD), (2, GOOD), (3, GOOD)])
        self.expect(self.near, [(900, GOOD)])
        self.models[0][BULK_AT : BULK_AT + bulk] = self.models[1][BULK_AT : BULK_AT + bulk]
        self.models[0][RECEIVE_AT : RECEIVE_AT + 64] = self.models[1][BULK_AT : BULK_AT + 64]
        self.counts["bytes"] += bulk
        return start, length, key

    def use(self, start: int, length: int, key: int, ending: str) -> None:
        """The requester's chain, and what the responder does then."""
        size, at = length // 2, start + self.chance.randrange(length - length // 2)
        write = self.work(self.near, 11, e.IBV_WR_RDMA_WRITE, 0, size)
        write.set_wr_rdma(key, self.far.mr.buf + at)
        read = self.work(self.near, 12, e.IBV_WR_RDMA_READ, WINDOW_MAX, length)
        read.set_wr_rdma(key, self.far.mr.buf + start)
        if ending == "forbidden":
            read.next_wr = write
            self.near.pair.post_send(read)
            self.expect(self.near, [(12, GOOD), (11, REFUSED)])
        else:
            last = self.work(self.near, 13, e.IBV_WR_SEND_WITH_INV if ending == "remote" else e.IBV_WR_SEND, 0, 64)
            if ending == "remote":
                last.imm_data = key
                # What was read must have left before the window goes.
                last.send_flags |= e.IBV_SEND_FENCE
            write.next_wr, read.next_wr = read, last
            self.near.pair.post_send(write)
            self.expect(self.near, [(11, GOOD), (12, GOOD), (13, GOOD)])
            self.models[1][at : at + size] = self.models[0][:size]
            self.counts["bytes"] += size
        self.models[0][WINDOW_MAX : WINDOW_MAX + length] = self.models[1][start : start + length]
        self.counts["bytes"] += length
        if ending == "forbidden":
            self.expect_flushed(self.far)
            return
        found = self.expect(self.far, [(900, GOOD)])
        self.models[1][RECEIVE_AT : RECEIVE_AT + 64] = self.models[0][:64]
        if ending == "remote":
            # The key alone: the kernel's flag for it is another bit than the library's, and Soft-RoCE passes it on as it is.
            immediate, swapped = found[0].imm_data, int.from_bytes(key.to_bytes(4, "little"), "big")
            assert immediate in (key, swapped), f"the receiver got the invalidation of {immediate:#x}, not {key:#x}"
        if ending == "local":
            word = SendWR(wr_id=4, opcode=e.IBV_WR_LOCAL_INV, send_flags=e.IBV_SEND_SIGNALED)
            word.imm_data = key
            self.far.pair.post_send(word)
            self.expect(self.far, [(4, GOOD)])

    def refuse(self, start: int, key: int) -> None:
        """A WRITE with a dead key, or on a queue pair that has failed."""
        failed = self.near.pair.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
        word = self.work(self.near, 21, e.IBV_WR_RDMA_WRITE, 0, 65536)
        word.set_wr_rdma(key, self.far.mr.buf + start)
        self.near.pair.post_send(word)
        self.expect(self.near, [(21, e.IBV_WC_WR_FLUSH_ERR if failed else REFUSED)])

    def work(self, end: End, identifier: int, verb: int, at: int, size: int) -> SendWR:
        """A signalled request over one piece of memory."""
        self.counts["requests"] += 1
        element = SGE(end.mr.buf + at, size, end.mr.lkey)
        return SendWR(wr_id=identifier, opcode=verb, num_sge=1, sg=[element], send_flags=e.IBV_SEND_SIGNALED)

    def expect(self, end: End, wanted: list[tuple[int, int]]) -> list:
        """These completions, in this order."""
        found = end.poll(len(wanted), PATIENCE_S)
        seen = [(completion.wr_id, completion.status) for completion in found]
        assert seen == wanted, f"completions {seen}, {wanted} expected"
        self.digest.update(repr([(*pair, completion.wc_flags) for pair, completion in zip(seen, found)]).encode())
        return found

    def expect_flushed(self, end: End) -> None:
        """The unused receive completes with an error once the request before it was refused."""
        self.expect(end, [(900, e.IBV_WC_WR_FLUSH_ERR)])

    def compare(self) -> None:
        """Every byte of both ends."""
        for name, end, model in zip(("requester", "responder"), (self.near, self.far), self.models):
            memory = end.memory()
            assert memory == bytes(model), f"the {name}'s memory differs in round {self.counts['rounds']}"
            self.digest.update(memory)


def main() -> None:
    """Runs the rounds, each ending as often as the others."""
    seed, rounds, gid_index = (int(word) for word in sys.argv[1:])
    trial = Trial(seed, gid_index)
    for number in range(rounds):
        trial.round(ENDINGS[number % len(ENDINGS)])
    print(json.dumps({**trial.counts, "outcomes": trial.digest.hexdigest()}))


if __name__ == "__main__":
    main()
