"""Isolane for Python: plans and pipelines of live ML queries, admission control for gRPC clients, sweeps and hunts on Ray.

The package is plain Python. `isolane.rpc` and `isolane.aio` also need the module `isolane_native`, which is compiled.
"""

__all__ = ["rpc"]
