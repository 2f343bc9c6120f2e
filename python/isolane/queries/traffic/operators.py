"""Operators of the traffic query: sampler, background subtractor, colour filter, detector, and the post that picks
vehicles.

Problem: find the red vehicles of a camera's frames, with filters that drop what cannot hold any. Units: pixels of
the frame as the camera saw it, in boxes; pixels of the shrunk frame inside operators. Payload: "frame" (height x
width x 3, eight bits), "scale_x", "scale_y" (shrunk per original pixel), "holds" (frames until the sampler's next
one), "left", "top" (the place of a crop in the shrunk frame), "moving" (blocks that the background subtractor saw
move), then "boxes" (n x 4), "kinds", "redness". Method: see each class. The two filters may be in either order,
and the order shows: after the subtractor the colour filter looks at moving blocks alone, so that a red awning does
not count; before it, the subtractor sees fewer frames and learns the background from them. Limits: a fixed camera.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from isolane.pipeline.item import Item, Value
from isolane.queries import centres, images
from isolane.queries.onnx import own_net
from isolane.queries.operator import Operator, array, number
from isolane.queries.traffic.scene import KINDS

#: Pixels of a detector's output cell.
STRIDE = 8
#: Box sides that the detectors' numbers are relative to, in shrunk pixels.
BOX_WIDTH, BOX_HEIGHT = 32.0, 16.0
#: Side of a block of the background subtractor, in shrunk pixels.
BLOCK = 8


class Sampler(Operator):
    """The source: keeps every n-th frame (by item id, so that it does not matter when it starts) and shrinks it."""

    KNOBS = {"every": (6, 5, 4, 3, 2), "resize": (0.6, 0.7, 0.8, 0.9, 1.0)}

    def process(self, item: Item) -> list[Item]:
        """The shrunk frame, or nothing."""
        if item.id % int(self.knobs["every"]):
            return []
        frame = array(item, "frame", 3)
        small = images.resize(frame, float(self.knobs["resize"]))
        scale_x, scale_y = small.shape[1] / frame.shape[1], small.shape[0] / frame.shape[0]
        return [
            item.with_payload(
                frame=small, scale_x=scale_x, scale_y=scale_y, left=0.0, top=0.0, holds=float(self.knobs["every"])
            )
        ]


class BackgroundSubtractor(Operator):
    """Drops frames in which nothing moved, and crops the others to what moved.

    The background is the median of `MEMORY` past frames, `SPACING_S` apart, at half size; a block moves where the mean
    deviation from it exceeds what noise makes. Moving blocks with a margin bound the crop. Until the memory is full, and
    after the whole picture changed (another size, the light switched), every frame passes as it is. It sees brightness
    alone, as cheap subtractors do: of a red car as bright as the road only windows, wheels and shadow move, so that a
    colour filter behind it misses some cars that one before it finds.
    """

    #: Frames in the memory, and seconds between them: a slow car leaves its place within half of the memory's span.
    MEMORY, SPACING_S = 9, 0.4
    #: How much sooner a frame may come that counts as so far apart: live frames are not exactly on time, and a memory that takes
    #: every other one fills in twice the time. Less than half of the time between two frames of the camera.
    JITTER_S = 0.03
    #: Mean deviation of a block, in levels of brightness, from which it moves; sensor noise alone makes 4 to 6.
    DEVIATION = 9.0
    #: Share of moving blocks from which the camera itself moved or the light was switched: the memory starts again.
    CUT = 0.5
    #: Blocks around moving ones that stay in the crop, so that the detector sees an object's edge.
    MARGIN = 2
    #: Moving blocks below which a frame is dropped.
    LEAST_BLOCKS = 2

    def __init__(self) -> None:
        super().__init__()
        self._past: list[images.Floats] = []
        self._last_s = -math.inf
        self._background: images.Floats | None = None

    def process(self, item: Item) -> list[Item]:
        """The crop around what moved, or nothing."""
        frame = array(item, "frame", 3)
        level = images.grey(frame[::2, ::2])
        if self._past and self._past[-1].shape != level.shape:
            self._forget()
        self._remember(level, item.time_s)
        if self._background is None:
            return [item]
        half = BLOCK // 2
        rows, columns = level.shape[0] // half, level.shape[1] // half
        difference = np.abs(level - self._background)[: rows * half, : columns * half]
        moving = difference.reshape(rows, half, columns, half).mean(axis=(1, 3)) > self.DEVIATION
        if moving.mean() > self.CUT:
            self._forget()
            self._remember(level, item.time_s)
            return [item]
        if int(moving.sum()) < self.LEAST_BLOCKS:
            return []
        return [self._crop(item, frame, moving)]

    def _forget(self) -> None:
        self._past, self._background, self._last_s = [], None, -math.inf

    def _remember(self, level: images.Floats, time_s: float) -> None:
        if 0 <= time_s - self._last_s < self.SPACING_S - self.JITTER_S:
            return
        self._past = [*self._past[-(self.MEMORY - 1) :], level]
        self._last_s = time_s
        if len(self._past) == self.MEMORY:
            self._background = np.median(np.stack(self._past), axis=0).astype(np.float32)

    def state(self) -> dict[str, Value]:
        """The memory, for a successor on another tier."""
        if not self._past:
            return {}
        return {"past": np.stack(self._past).astype(np.float16), "last_s": self._last_s}

    def restore(self, state: Mapping[str, Value]) -> None:
        """Goes on from another's memory."""
        past, last_s = state.get("past"), state.get("last_s")
        if isinstance(past, np.ndarray) and isinstance(last_s, float):
            self._past, self._last_s = list(past.astype(np.float32)), last_s
            self._background = np.median(np.stack(self._past), axis=0) if len(past) == self.MEMORY else None

    def _crop(self, item: Item, frame: images.Image, moving: images.Mask) -> Item:
        present_rows, present_columns = np.nonzero(moving.any(axis=1))[0], np.nonzero(moving.any(axis=0))[0]
        step = images.SIDE_STEP // BLOCK
        top = max(0, int(present_rows[0]) - self.MARGIN) // step * step
        left = max(0, int(present_columns[0]) - self.MARGIN) // step * step
        bottom = min(moving.shape[0], -(-(int(present_rows[-1]) + 1 + self.MARGIN) // step) * step)
        right = min(moving.shape[1], -(-(int(present_columns[-1]) + 1 + self.MARGIN) // step) * step)
        crop = frame[top * BLOCK : bottom * BLOCK, left * BLOCK : right * BLOCK]
        return item.with_payload(
            frame=np.ascontiguousarray(crop),
            moving=moving[top:bottom, left:right].astype(np.uint8),
            left=number(item, "left", 0.0) + left * BLOCK,
            top=number(item, "top", 0.0) + top * BLOCK,
        )


class ColourFilter(Operator):
    """Drops frames without enough red pixels; looks only at moving blocks where the item says which moved."""

    #: Red pixels of a full-size frame that a vehicle has at least.
    LEAST_PIXELS = 20.0

    def process(self, item: Item) -> list[Item]:
        """The item itself, or nothing."""
        frame = array(item, "frame", 3)
        mask = images.red(frame)
        counts = images.blocks(mask, BLOCK)
        if "moving" in item.payload:
            moving = array(item, "moving", 2)
            if moving.shape == counts.shape:
                counts = counts * moving
        least = self.LEAST_PIXELS * number(item, "scale_x", 1.0) * number(item, "scale_y", 1.0)
        return [item] if counts.sum() >= least else []


class Detector(Operator):
    """Finds cars, trucks and people with one of three nets, and measures how red each is."""

    KNOBS = {"model": ("small", "medium", "large")}
    #: Chance from which a centre counts.
    THRESHOLD = 0.4

    def changed(self) -> None:
        """Loads the model before the next item needs it."""
        own_net("traffic", f"detector_{self.knobs['model']}")

    def process(self, item: Item) -> list[Item]:
        """Boxes in the camera's pixels, in place of the frame."""
        frame = array(item, "frame", 3)
        x = frame.transpose(2, 0, 1)[None].astype(np.float32) * np.float32(1 / 127.5) - 1
        grid = own_net("traffic", f"detector_{self.knobs['model']}").run(x)[0][0]
        rows, columns, chances, values, kinds = centres.peaks(grid, 4, self.THRESHOLD)
        x_centre, y_centre = (columns + values[:, 0]) * STRIDE, (rows + values[:, 1]) * STRIDE
        sizes = np.exp(np.clip(values[:, 2:4], -3, 3)) * np.array([BOX_WIDTH, BOX_HEIGHT], np.float32) / 2
        inside = np.stack(
            [x_centre - sizes[:, 0], y_centre - sizes[:, 1], x_centre + sizes[:, 0], y_centre + sizes[:, 1]], axis=1
        ).astype(np.float32)
        kept = centres.distinct([tuple(box) for box in inside.tolist()], 0.4)
        inside, kinds, chances = inside[kept], kinds[kept], chances[kept]
        redness = np.array([_redness(frame, box) for box in inside], np.float32)
        offset = np.array([number(item, "left", 0.0), number(item, "top", 0.0)] * 2, np.float32)
        scale = np.array([number(item, "scale_x", 1.0), number(item, "scale_y", 1.0)] * 2, np.float32)
        return [
            Item(
                item.id,
                item.time_s,
                {
                    "boxes": (inside + offset) / scale,
                    "kinds": kinds.astype(np.uint8),
                    "chances": chances,
                    "redness": redness,
                    "holds": number(item, "holds", 1.0),
                },
            )
        ]


def _redness(frame: images.Image, box: images.Floats) -> float:
    """Share of the box's middle that is red."""
    left, top, right, bottom = (float(side) for side in box)
    x0, x1 = left + 0.15 * (right - left), right - 0.15 * (right - left)
    part = frame[max(0, int(top)) : max(1, int(bottom) + 1), max(0, int(x0)) : max(1, int(x1) + 1)]
    return float(images.red(part).mean()) if part.size else 0.0


class RedVehicles(Operator):
    """The post: keeps boxes of red vehicles and counts them."""

    #: Share of red from which a vehicle is red; windows and wheels are not.
    LEAST_REDNESS = 0.25

    def process(self, item: Item) -> list[Item]:
        """The red vehicles' boxes and their count."""
        boxes, kinds = array(item, "boxes", 2), array(item, "kinds", 1)
        chosen = boxes[(kinds < KINDS.index("person")) & (array(item, "redness", 1) >= self.LEAST_REDNESS)]
        return [
            Item(
                item.id,
                item.time_s,
                {
                    "boxes": chosen,
                    "count": float(len(chosen)),
                    "holds": number(item, "holds", 1.0),
                },
            )
        ]
