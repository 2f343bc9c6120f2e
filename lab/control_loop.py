#!/usr/bin/env python3
"""Registers and deregisters a page for ever, as husky's control-verb attacker does; says how often and how it went.

    control_loop.py DEVICE FILE

FILE gets three numbers of 8 bytes, little-endian: pairs done, errors seen, nanoseconds of the longest pair since the last
time the reader set that number to 0. Ends by itself after two minutes.
"""
import mmap
import struct
import sys
import time

from pyverbs.device import Context
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError

SECONDS_MAX = 120

with open(sys.argv[2], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 24)
context = Context(name=sys.argv[1])
domain = PD(context)
pairs = errors = 0
end = time.monotonic() + SECONDS_MAX
while time.monotonic() < end:
    begin = time.monotonic_ns()
    try:
        MR(domain, 4096, IBV_ACCESS_LOCAL_WRITE).close()
        pairs += 1
    except PyverbsError as error:
        errors += 1
        print(error, flush=True)
    longest = struct.unpack_from("<Q", shared, 16)[0]
    struct.pack_into("<QQQ", shared, 0, pairs, errors, max(longest, time.monotonic_ns() - begin))
