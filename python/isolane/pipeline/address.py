"""Addresses of operators: a path, or a host and port with or without TLS."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass


_PORT = re.compile(r"[0-9]{1,5}")


class AddressError(ValueError):
    """An address that is none."""


@dataclass(frozen=True)
class Place:
    """Where an address leads: a path, or a host and port, with or without TLS."""

    path: str | None
    host: str = ""
    port: int = 0
    tls: bool = False


def split_address(address: str) -> Place:
    """The path of `unix:/path`, or host and port of `http://host:port` or `https://host:port`."""
    if address.startswith("unix:/"):
        return Place(address.removeprefix("unix:"))
    tls = address.startswith("https://")
    rest = address.removeprefix("https://" if tls else "http://").rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon:
        host, port = rest, "443" if tls else "80"
    if not address.startswith(("http://", "https://")) or not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise AddressError(f"address {address!r}: write https://host:port, http://host:port or unix:/path")
    return Place(None, host, int(port), tls)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches this address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
