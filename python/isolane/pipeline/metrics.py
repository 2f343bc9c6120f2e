"""What a host counts, and its form for Prometheus.

Units: `_ms` milliseconds, `_bytes` bytes, totals since the start. Limits: quantiles are of the last `RECENT` items.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Items whose times quantiles are taken of.
RECENT = 256


@dataclass
class Counts:
    """Totals of one host."""

    received: int = 0
    passed: int = 0
    filtered: int = 0
    failed: int = 0
    again: int = 0
    hangs: int = 0
    configured: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    process_ms_total: float = 0.0
    recent_ms: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def took(self, process_ms: float, bytes_out: int) -> None:
        """Counts one processed item."""
        self.bytes_out += bytes_out
        self.process_ms_total += process_ms
        self.recent_ms.append(process_ms)

    def document(self) -> dict[str, Any]:
        """The totals by name."""
        totals = {name: value for name, value in vars(self).items() if name != "recent_ms"}
        ordered = sorted(self.recent_ms)
        return {**totals, "process_ms_p50": quantile(ordered, 0.5), "process_ms_p99": quantile(ordered, 0.99)}


def quantile(ordered: list[float], share: float) -> float | None:
    """The value with this share of the (sorted) values below it; the nearest rank."""
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


_HELP = {
    "received": ("counter", "items received"),
    "passed": ("counter", "items sent on or delivered"),
    "filtered": ("counter", "items filtered out here"),
    "failed": ("counter", "items that failed here"),
    "again": ("counter", "items received again after a broken connection"),
    "hangs": ("counter", "items that the operator did not come back from"),
    "raised": ("counter", "exceptions of the operator"),
    "rests": ("counter", "times that the operator rested after failures in a row"),
    "configured": ("counter", "configurations taken"),
    "batches": ("counter", "calls of the operator with several items"),
    "bytes_in": ("counter", "bytes received in items"),
    "bytes_out": ("counter", "bytes sent on in items"),
    "process_ms_total": ("counter", "milliseconds of work"),
    "process_ms_p50": ("gauge", "median milliseconds per item of the last ones"),
    "process_ms_p99": ("gauge", "99th percentile of the same"),
    "in_flight": ("gauge", "items received and not yet answered"),
    "waiting": ("gauge", "items that wait for the operator"),
    "inbound_mbit_per_s": ("gauge", "median speed at which large items arrived"),
}


_LISTENER = {
    "accepted_total": ("counter", "connections accepted"),
    "shed_total": ("counter", "connections closed because another one needed their place"),
    "late_total": ("counter", "connections closed because a part of an exchange took too long"),
    "unproven_total": ("counter", "connections closed before TLS was done"),
    "refused_total": ("counter", "connections of other users to a Unix socket"),
    "starved_total": ("counter", "times that no descriptor or memory was left for a connection"),
    "open": ("gauge", "connections that can send requests"),
    "entering": ("gauge", "connections before TLS is done"),
    "body_bytes": ("gauge", "bytes of bodies that are received or not answered"),
}


def prometheus(document: dict[str, Any]) -> str:
    """A host's metrics as Prometheus text (version 0.0.4)."""
    named = {name: str(document[name]) for name in ("operator", "tier")}
    labels = _labels(named)
    lines = [prometheus_of("isolane_operator", _HELP, named, document)]
    link: dict[str, Any] = document.get("link") or {}
    for name in ("sent_items", "sent_bytes", "unanswered", "breaks", "circuit_opened") if link else ():
        full = f"isolane_link_{name}"
        kind = "gauge" if name == "unanswered" else "counter"
        lines += [f"# TYPE {full} {kind}", f'{full}{{{labels},target="{_escape(link["target"])}"}} {link[name]}']
    listener: dict[str, Any] = document.get("listener") or {}
    counted = {name: listener.get(name.removesuffix("_total")) for name in _LISTENER}
    lines.append(prometheus_of("isolane_listener", _LISTENER, named, counted))
    return "\n".join(filter(None, lines)) + "\n"


def prometheus_of(prefix: str, helps: Mapping[str, tuple[str, str]], labels: Mapping[str, str], document: Mapping[str, Any]) -> str:
    """The lines of those metrics that a document has."""
    lines = []
    for name, (kind, words) in helps.items():
        if document.get(name) is not None:
            full = f"{prefix}_{name}"
            lines += [f"# HELP {full} {words}", f"# TYPE {full} {kind}", f"{full}{{{_labels(labels)}}} {document[name]}"]
    return "\n".join(lines)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
