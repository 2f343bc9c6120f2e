#!/usr/bin/env python3
"""Holds memory: SIZE MiB in all. It reads the first HOT MiB repeatedly, and counts the rounds.

    memory_tenant.py SIZE HOT FILE

Writes the number of rounds over the hot part to FILE, eight bytes, so a measuring program can read it at any time.
"""
from __future__ import annotations

import mmap
import struct
import sys
import time

PAGE = 4096


def main() -> None:
    """Touches everything once, then the hot part for ever."""
    size, hot = (int(word) << 20 for word in sys.argv[1:3])
    memory = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    memory[::PAGE] = b"1" * (size // PAGE)
    ones = b"2" * (hot // PAGE)
    rounds = 0
    with open(sys.argv[3], "wb", buffering=0) as file:
        while True:
            if hot:
                memory[:hot:PAGE] = ones
                rounds += 1
            file.seek(0)
            file.write(struct.pack("<Q", rounds))
            time.sleep(0.01 if hot else 1)


main()
