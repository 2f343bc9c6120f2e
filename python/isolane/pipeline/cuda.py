"""How long a CUDA device works for an operator, for operators in PyTorch.

Problem: a plan needs the time of the accelerator and that of the core apart, and PyTorch's own wait for a result keeps a core busy.
Method: CUDA events around the work; the thread sleeps until the second one has happened.

    class Detector:
        def __init__(self) -> None:
            self.cuda = CudaTime()

        def process(self, item: Item) -> list[Item]:
            with self.cuda:
                found = self.net(torch.from_numpy(item.payload["frame"]).cuda())
            ...                                                    # `found.cpu()` has nothing to wait for now

        def accelerator_ms(self) -> float:
            return self.cuda.total_ms

Units: milliseconds. Limits: the work must be in the current stream of the current device. The time between two kernels counts as the
accelerator's, also where the device waits for the thread. Source: the documentation of `torch.cuda.Event`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any


class CudaTime:
    """A context whose end waits, asleep, for the work that was started in it; one thread at a time."""

    def __init__(self) -> None:
        import torch

        self.total_ms = 0.0
        self._begin: Any = torch.cuda.Event(enable_timing=True)
        self._end: Any = torch.cuda.Event(enable_timing=True, blocking=True)

    def __enter__(self) -> CudaTime:
        self._begin.record()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._end.record()
            self._end.synchronize()
            self.total_ms += self._begin.elapsed_time(self._end)
