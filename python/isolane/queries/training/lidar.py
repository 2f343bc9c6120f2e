"""Trains the three detectors of the driving query and writes them as ONNX.

Problem: detectors of three sizes that work on any cloud the filters may leave. Units: cells of 0.3 m in, 0.6 m out.
Method: streets with random weather; each scan goes through filters with random knobs in a random order; crops of 96
x 96 cells, mirrored at random; the loss of `centre`. Limits: as the package says. Seeds 1000 and up; profiles use
less.
"""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from isolane.pipeline.item import Item
from isolane.queries.lidar.operators import CELLS, CHANNELS, OUTPUT_CELL, GroundRemoval, Voxelisation, grid
from isolane.queries.lidar.scan import KINDS, WATCHED, Conditions, Street, Truth
from isolane.queries.training import nets
from isolane.queries.training.centre import RARE, centre_loss

#: Channels of the layers before the head, steps.
SIZES = {"small": ((8, 8, 8), 1500), "medium": ((16, 16, 16, 16), 1500), "large": ((24, 32, 32, 32, 32), 1500)}
SCANS, BATCH, CROP = 1600, 6, 96
OUTPUTS = 1 + 2 + len(KINDS)


def layers(channels: tuple[int, ...]) -> list[nets.Layer]:
    """A net with an output cell for each 2 x 2 input cells."""
    body = [nets.Layer(count, (3, 3), (1, 1) if index else (2, 2)) for index, count in enumerate(channels)]
    return [*body, nets.Layer(OUTPUTS, (1, 1))]


def target(truths: list[Truth]) -> np.ndarray[Any, Any]:
    """What the net should say."""
    side = CELLS // 2
    wanted = np.zeros((OUTPUTS, side, side), np.float32)
    for truth in truths:
        x, y = (truth.x + WATCHED) / OUTPUT_CELL, (truth.y + WATCHED) / OUTPUT_CELL
        row, column = int(x), int(y)
        for near_row, near_column in ((row, column - 1), (row, column + 1), (row - 1, column), (row + 1, column)):
            if 0 <= near_row < side and 0 <= near_column < side:
                wanted[0, near_row, near_column] = max(wanted[0, near_row, near_column], 0.6)
        wanted[:, row, column] = 0
        wanted[0, row, column] = 1
        wanted[1:3, row, column] = (x - row, y - column)
        wanted[3 + truth.kind, row, column] = 1
    return wanted


def scans(count: int) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Grids of filtered scans, with their targets."""
    result = []
    ground, voxels = GroundRemoval(), Voxelisation()
    for index in range(count):
        random = np.random.default_rng(1000 + index)
        conditions = Conditions(
            lost=float(random.uniform(0, 0.25)),
            ghosts=float(random.choice([0, 0, 0.02])),
            noise_m=float(random.uniform(0.02, 0.06)),
            objects=20,
        )
        points, truths, _ = Street(1000 + index, conditions).step()
        ground.configure({"distance_m": float(random.choice([0.1, 0.2, 0.3, 0.4, 0.5]))})
        voxels.configure({"voxel_m": float(random.choice([0.1, 0.2, 0.3, 0.4, 0.5]))})
        items = [Item(index, 0.0, {"points": points})]
        for operator in ((ground, voxels), (voxels, ground), (ground,), ())[
            int(random.choice(4, p=[0.55, 0.35, 0.1, 0.0]))
        ]:
            items = [later for item in items for later in operator.process(item)]
        if items:
            cloud = items[0].payload["points"]
            assert isinstance(cloud, np.ndarray)
            result.append((grid(cloud).astype(np.float16), target(truths)))
    return result


def batches(data: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], seed: int) -> Iterator[tuple[Any, ...]]:
    """Crops without end, mirrored along either axis at random."""
    random = np.random.default_rng([seed, 0x6C62])
    side = CROP // 2
    while True:
        clouds, targets = [], []
        for index in random.integers(0, len(data), BATCH):
            cloud, wanted = data[index]
            row, column = random.integers(0, CELLS // 2 - side + 1, 2)
            part = cloud[:, 2 * row : 2 * row + CROP, 2 * column : 2 * column + CROP].astype(np.float32)
            goal = wanted[:, row : row + side, column : column + side].copy()
            for axis in (1, 2):
                if random.random() < 0.5:
                    part, goal = np.flip(part, axis), np.flip(goal, axis).copy()
                    goal[axis] = np.where(goal[0] >= 1, 1 - goal[axis], 0)
            clouds.append(part)
            targets.append(goal)
        yield np.asarray(clouds), np.asarray(targets)


def main(directory: pathlib.Path) -> None:
    """Trains all sizes into `directory`."""
    began = time.monotonic()
    data = scans(SCANS)
    print(f"{len(data)} scans in {time.monotonic() - began:.0f} s", flush=True)
    loss = functools.partial(centre_loss, numbers=2)
    for seed, (name, (channels, steps)) in enumerate(SIZES.items()):
        path = directory / f"detector_{name}.onnx"
        said = nets.learn(
            layers(channels), [1, CHANNELS, CELLS, CELLS], loss, batches(data, seed), path,
            last_bias=RARE, steps=steps, peak_rate=4e-3, seed=seed,
        )
        print(f"{name}: {said}", flush=True)
