#!/usr/bin/env python3
"""Registers and deregisters a page for ever, as husky's control-verb attacker does; says how often and how it went.

    control_loop.py DEVICE FILE [CALLERS [SECONDS]]

CALLERS processes do so (1), each with a context of its own. Each writes three numbers of 8 bytes, little-endian, into its
part of FILE, which has 24 bytes for each: pairs done, errors seen, nanoseconds of the longest pair since the last time the
reader set that number to 0. All end by themselves after SECONDS (120).
"""
import mmap
import os
import struct
import sys
import time

from pyverbs.device import Context
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError

SECONDS_MAX = float(sys.argv[4]) if len(sys.argv) > 4 else 120

callers = int(sys.argv[3]) if len(sys.argv) > 3 else 1
with open(sys.argv[2], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 24 * callers)
# The first process is a caller too.
mine = next((caller for caller in range(1, callers) if os.fork() == 0), 0)
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
    longest = struct.unpack_from("<Q", shared, 24 * mine + 16)[0]
    struct.pack_into("<QQQ", shared, 24 * mine, pairs, errors, max(longest, time.monotonic_ns() - begin))
