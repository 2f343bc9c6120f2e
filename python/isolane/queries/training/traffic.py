"""Trains the three detectors of the traffic query and writes them as ONNX.

Problem: detectors of three sizes that also work on frames shrunk to 0.6 of their size and on crops. Units: pixels.
Method: crowded scenes with random darkness and noise, each frame kept at one random scale (0.5 to 1.1: scale
augmentation), crops of 192x112; the loss of `centre`. Limits: as the package says. Seeds 1000 and up; profiles use
seeds below 100.
"""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from isolane.queries.images import resize
from isolane.queries.traffic.operators import BOX_HEIGHT, BOX_WIDTH, STRIDE
from isolane.queries.traffic.scene import HEIGHT, KINDS, WIDTH, Conditions, Scene, Truth
from isolane.queries.training import nets
from isolane.queries.training.centre import RARE, centre_loss

#: Width of the first layer, extra layers at the end, steps.
SIZES = {"small": (4, 0, 900), "medium": (8, 1, 900), "large": (12, 2, 1000)}
FRAMES, BATCH = 1500, 8
CROP_WIDTH, CROP_HEIGHT = 192, 112


def layers(width: int, extra: int) -> list[nets.Layer]:
    """A net with an output cell for each 8 x 8 pixels."""
    three, halve = (3, 3), (2, 2)
    head = nets.Layer(1 + 4 + len(KINDS), (1, 1))
    body = [nets.Layer(width, three, halve), nets.Layer(2 * width, three, halve), nets.Layer(4 * width, three, halve)]
    return [*body, *[nets.Layer(4 * width, three)] * extra, head]


def target(truths: list[Truth], scale_x: float, scale_y: float, rows: int, columns: int) -> np.ndarray[Any, Any]:
    """What the net should say about a frame scaled by the two factors."""
    grid = np.zeros((1 + 4 + len(KINDS), rows, columns), np.float32)
    for truth in truths:
        left, top, right, bottom = truth.box
        x, y = (left + right) / 2 * scale_x / STRIDE, (top + bottom) / 2 * scale_y / STRIDE
        row, column = int(y), int(x)
        if not (0 <= row < rows and 0 <= column < columns):
            continue
        for near_row, near_column in ((row, column - 1), (row, column + 1), (row - 1, column), (row + 1, column)):
            if 0 <= near_row < rows and 0 <= near_column < columns:
                grid[0, near_row, near_column] = max(grid[0, near_row, near_column], 0.6)
        size = (np.log((right - left) * scale_x / BOX_WIDTH), np.log((bottom - top) * scale_y / BOX_HEIGHT))
        grid[:, row, column] = 0
        grid[0, row, column] = 1
        grid[1:5, row, column] = (x - column, y - row, *size)
        grid[5 + truth.kind, row, column] = 1
    return grid


def frames(count: int) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Frames at random scales, with their targets."""
    result: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    seed = 1000
    while len(result) < count:
        random = np.random.default_rng(seed)
        conditions = Conditions(
            darkness=float(random.uniform(0, 0.6)), noise=float(random.uniform(2, 12)), arrivals_per_frame=0.06
        )
        scene = Scene(seed, conditions)
        for index in range(120):
            image, truths = scene.step()
            if index % 8:
                continue
            scaled = resize(image, float(random.uniform(0.5, 1.0)) if random.random() < 0.7 else 1.0)
            rows, columns = scaled.shape[0] // STRIDE, scaled.shape[1] // STRIDE
            factors = scaled.shape[1] / WIDTH, scaled.shape[0] / HEIGHT
            result.append((scaled, target(truths, *factors, rows, columns)))
        seed += 1
    return result[:count]


def batches(data: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]], seed: int) -> Iterator[tuple[Any, ...]]:
    """Crops without end."""
    random = np.random.default_rng([seed, 0x6261])
    while True:
        pixels, targets = [], []
        for index in random.integers(0, len(data), BATCH):
            image, grid = data[index]
            row = int(random.integers(0, (image.shape[0] - CROP_HEIGHT) // STRIDE + 1))
            column = int(random.integers(0, (image.shape[1] - CROP_WIDTH) // STRIDE + 1))
            top, left = row * STRIDE, column * STRIDE
            pixels.append(image[top : top + CROP_HEIGHT, left : left + CROP_WIDTH].transpose(2, 0, 1))
            targets.append(grid[:, row : row + CROP_HEIGHT // STRIDE, column : column + CROP_WIDTH // STRIDE])
        yield np.asarray(pixels, np.float32) / 127.5 - 1, np.asarray(targets)


def main(directory: pathlib.Path) -> None:
    """Trains all sizes into `directory`."""
    began = time.monotonic()
    data = frames(FRAMES)
    print(f"{len(data)} frames in {time.monotonic() - began:.0f} s", flush=True)
    loss = functools.partial(centre_loss, numbers=4)
    for seed, (name, (width, extra, steps)) in enumerate(SIZES.items()):
        path = directory / f"detector_{name}.onnx"
        said = nets.learn(
            layers(width, extra), [1, 3, "height", "width"], loss, batches(data, seed), path,
            last_bias=RARE, steps=steps, peak_rate=4e-3, seed=seed,
        )
        print(f"{name}: {said}", flush=True)
