#!/usr/bin/env python3
"""Asks isolaned to take this process in as an application, then becomes the command.

    memory_caller.py SOCKET APPLICATION_AS_JSON COMMAND...
"""
from __future__ import annotations

import json
import os
import socket
import sys


def main() -> None:
    """One request, one answer, and the command in its place."""
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(sys.argv[1])
        say = {"submit": {"application": json.loads(sys.argv[2]), "place": "caller"}}
        service.sendall(json.dumps({"version": 2, "say": say}).encode() + b"\n")
        answer = json.loads(service.makefile().readline())["say"]
    if "admitted" not in answer:
        sys.exit(f"not admitted: {answer}")
    os.execv(sys.argv[3], sys.argv[3:])


main()
