"""Isolane for Python. `isolane.rpc` is admission control for gRPC clients."""

__all__ = ["rpc"]
