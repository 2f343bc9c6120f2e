#!/usr/bin/env python3
"""Asks isolaned to take this process in as an application, then becomes the command.

    memory_caller.py SOCKET APPLICATION_AS_JSON COMMAND...
"""
from __future__ import annotations

import json
import os
import socket
import sys
import time

# The service decides nothing on an old picture of the machine; its answer says to ask again.
BUSY_S = 30


def main() -> None:
    """Asks, again while the service is busy, and puts the command in this process's place."""
    say = {"submit": {"application": json.loads(sys.argv[2]), "place": "caller"}}
    end = time.monotonic() + BUSY_S
    while True:
        with socket.socket(socket.AF_UNIX) as service:
            service.connect(sys.argv[1])
            service.sendall(json.dumps({"version": 2, "say": say}).encode() + b"\n")
            answer = json.loads(service.makefile().readline())["say"]
        if "admitted" in answer:
            os.execv(sys.argv[3], sys.argv[3:])
        if answer.get("failed", {}).get("code") != "busy" or time.monotonic() > end:
            sys.exit(f"not admitted: {answer}")
        time.sleep(0.2)


main()
