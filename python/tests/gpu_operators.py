"""Operators that work on a CUDA device, in three ways, and a workload for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from isolane.pipeline.cuda import CudaTime
from isolane.pipeline.item import Item, Value

COUNT = 60
SIDE = 512


class Frames:
    """The source: items as they are."""

    def configure(self, knobs: Mapping[str, int]) -> None:
        pass

    def process(self, item: Item) -> list[Item]:
        return [item]


class Net:
    """Convolutions without trained weights; waits for the device as PyTorch does, and tells nothing."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = False
        self.first = torch.nn.Conv2d(3, 64, 3, padding=1).cuda().eval()
        self.layer = torch.nn.Conv2d(64, 64, 3, padding=1).cuda().eval()
        self.depth = 8

    def configure(self, knobs: Mapping[str, int]) -> None:
        self.depth = knobs.get("depth", self.depth)

    def work(self, item: Item) -> torch.Tensor:
        with torch.no_grad():
            values = self.first(torch.from_numpy(np.array(item.payload["frame"])).cuda().float().permute(2, 0, 1)[None])
            for _ in range(self.depth):
                values = torch.relu(self.layer(values))
            return values.mean()

    def process(self, item: Item) -> list[Item]:
        return [Item(item.id, item.time_s, {"mean": float(self.work(item).cpu())})]


class Tells(Net):
    """The same, and tells the time of the device; the wait computes."""

    def __init__(self) -> None:
        super().__init__()
        self.total_ms = 0.0
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def process(self, item: Item) -> list[Item]:
        self.begin.record()
        mean = self.work(item)
        self.end.record()
        made = [Item(item.id, item.time_s, {"mean": float(mean.cpu())})]
        self.total_ms += self.begin.elapsed_time(self.end)
        return made

    def accelerator_ms(self) -> float:
        return self.total_ms


class Sleeps(Net):
    """Tells the time of the device, and waits for it asleep."""

    def __init__(self) -> None:
        super().__init__()
        self.cuda = CudaTime()

    def process(self, item: Item) -> list[Item]:
        with self.cuda:
            mean = self.work(item)
        return [Item(item.id, item.time_s, {"mean": float(mean.cpu())})]

    def accelerator_ms(self) -> float:
        return self.cuda.total_ms


class Data:
    """Frames of noise; every output is right."""

    def items(self) -> Sequence[Item]:
        noise = np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        payload: dict[str, Value] = {"frame": noise}
        return [Item(number, number / 30.0, payload) for number in range(COUNT)]

    def accuracy(self, outputs: Sequence[Item], reference: Sequence[Item] | None = None) -> float:
        return len(outputs) / COUNT if reference is None else 1.0

    def filter_score(self, passed: Sequence[Item]) -> tuple[float, float]:
        return (1.0, 1.0)
