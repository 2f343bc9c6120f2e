"""Certificates with which operators know each other on a network.

Problem: who reaches an operator's data port could feed it items, read results or fill its memory. Method: TLS 1.3 with certificates
of one authority on both ends, as the agents of real devices have: `isolane rdma agent init DIR NAME...` makes a directory per machine or
deployment with `authority.pem`, `certificate.pem` and `key.pem`. A peer is accepted if the authority signed its certificate; names are
not compared, since operators move between machines. Limits: every holder of a certificate is trusted alike, so a deployment needs an
authority of its own.
"""

from __future__ import annotations

import pathlib
import ssl
import stat
from dataclasses import dataclass


class IdentityError(ValueError):
    """Certificates that cannot be used; the message names the file."""


@dataclass(frozen=True)
class Identity:
    """Both ends' settings of TLS."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    @staticmethod
    def load(folder: pathlib.Path) -> Identity:
        """From a directory that `isolane rdma agent init` made."""
        key = folder / "key.pem"
        try:
            mode = stat.S_IMODE(key.stat().st_mode)
            if mode & 0o037:
                raise IdentityError(f"{key} can be read or changed by others (mode {mode:o}); chmod 600 it, or make new certificates")
            return Identity(_context(folder, ssl.PROTOCOL_TLS_SERVER), _context(folder, ssl.PROTOCOL_TLS_CLIENT))
        except (OSError, ssl.SSLError) as error:
            raise IdentityError(f"{folder}: no usable certificates: {error}; make them with `isolane rdma agent init`") from error


def _context(folder: pathlib.Path, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
