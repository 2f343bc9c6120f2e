"""Operators of the driving query: scanner, ground removal, voxelisation, detector, and the post that lists obstacles.

Problem: find cars, pedestrians and animals in laser scans, with filters that make the cloud smaller before it
travels. Units: metres. Payload: "points" (n x 4 single-precision: x, y, z, intensity), then "centres" (n x 2),
"kinds", "chances". Method: see each class. The two filters may be in either order: voxelisation first makes the
search for the ground cheaper, but less exact. Limits: one plane of ground, so that a raised pavement or a wave stays
or goes with the allowed distance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isolane.pipeline.item import Array, Item
from isolane.queries import centres
from isolane.queries.lidar.scan import FARTHEST, KINDS, SENSOR_HEIGHT, WATCHED, Points
from isolane.queries.onnx import own_net
from isolane.queries.operator import Operator, array

#: Side of a cell of the detectors' input, and of their output.
CELL, OUTPUT_CELL = 0.3, 0.6
#: Cells along a side of the input.
CELLS = int(2 * WATCHED / CELL)
#: Heights above the ground between which points are counted.
SLICES = (-0.5, 0.35, 0.8, 1.3, 2.0, 5.0)
#: Channels of the input: points in each slice, highest, brightness.
CHANNELS = len(SLICES) + 1


class Scanner(Operator):
    """The source: passes the scan on, without points that are no numbers or are beyond the sensor's range."""

    def process(self, item: Item) -> list[Item]:
        """The checked scan."""
        points = array(item, "points", 2)
        good = np.isfinite(points).all(axis=1) & (np.abs(points[:, 0]) < FARTHEST) & (np.abs(points[:, 1]) < FARTHEST)
        return [item.with_payload(points=points if good.all() else points[good])]


class GroundRemoval(Operator):
    """Drops points within `distance_m` of the ground plane, found by random sampling (RANSAC) and least squares.

    Heights become those above the plane (less the sensor's), so that a slope levels out. The draws follow from the
    item's id: the same scan gives the same result.
    """

    KNOBS = {"distance_m": (0.5, 0.4, 0.3, 0.2, 0.1)}
    #: Planes tried, and points that judge them.
    TRIES, JUDGES = 40, 1500
    #: Points that may be ground: below the sensor by half of its height.
    CANDIDATE_TOP = -SENSOR_HEIGHT / 2

    def process(self, item: Item) -> list[Item]:
        """The scan without its ground; nothing where no point is left."""
        points: Points = array(item, "points", 2)
        plane = self._plane(points[:, :3], item.id)
        if plane is None:
            return [item]
        distance = points[:, :3] @ plane[:3] + plane[3]
        above = distance > float(self.knobs["distance_m"])
        kept = points[above]
        kept[:, 2] = distance[above] - SENSOR_HEIGHT
        return [item.with_payload(points=kept)] if len(kept) else []

    def _plane(self, points: Points, seed: int) -> npt.NDArray[np.float32] | None:
        """Unit normal (upwards) and offset, or nothing where there are too few points below the sensor."""
        low = points[points[:, 2] < self.CANDIDATE_TOP]
        if len(low) < 10:
            return None
        random = np.random.default_rng([seed, 0x6772])
        judges = low[random.integers(0, len(low), self.JUDGES)]
        corners = judges[random.integers(0, len(judges), (self.TRIES, 3))]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        lengths = np.linalg.norm(normals, axis=1)
        usable = (lengths > 1e-6) & (np.abs(normals[:, 2]) >= 0.95 * lengths)
        if not usable.any():
            return None
        normals = normals[usable] / lengths[usable, None]
        normals *= np.sign(normals[:, 2:3])
        offsets = -(normals * corners[usable, 0]).sum(axis=1)
        close = np.abs(judges @ normals.T + offsets) < 0.12
        ground = judges[close[:, int(close.sum(axis=0).argmax())]].astype(np.float64)
        # Height as a linear function of place, over the best plane's own points.
        design = np.column_stack([ground[:, :2], np.ones(len(ground))])
        slope_x, slope_y, height = np.linalg.lstsq(design, ground[:, 2], rcond=None)[0]
        normal = np.array([-slope_x, -slope_y, 1.0, -height])
        plane: npt.NDArray[np.float32] = (normal / np.linalg.norm(normal[:3])).astype(np.float32)
        return plane


class Voxelisation(Operator):
    """Replaces the points of each cube of `voxel_m` by their mean."""

    KNOBS = {"voxel_m": (0.5, 0.4, 0.3, 0.2, 0.1)}

    def process(self, item: Item) -> list[Item]:
        """One point per occupied cube."""
        points: Points = array(item, "points", 2)
        if not len(points):
            return []
        cubes = np.floor(points[:, :3] / np.float32(self.knobs["voxel_m"])).astype(np.int64) + 4096
        _, place = np.unique((cubes[:, 0] << 40) | (cubes[:, 1] << 20) | cubes[:, 2], return_inverse=True)
        counts = np.bincount(place)
        means = np.stack([np.bincount(place, points[:, column]) / counts for column in range(points.shape[1])], axis=1)
        return [item.with_payload(points=means.astype(np.float32))]


def grid(points: Array) -> npt.NDArray[np.float32]:
    """What the detectors see: channels x cells x cells, rows along x and columns along y."""
    inside = (np.abs(points[:, 0]) < WATCHED) & (np.abs(points[:, 1]) < WATCHED)
    points = points[inside]
    cells = ((points[:, :2] + WATCHED) / CELL).astype(np.int64)
    flat = np.minimum(cells[:, 0], CELLS - 1) * CELLS + np.minimum(cells[:, 1], CELLS - 1)
    size = CELLS * CELLS
    result = np.zeros((CHANNELS, size), np.float32)
    height = (points[:, 2] + SENSOR_HEIGHT).astype(np.float32)
    inside_slice = np.clip(np.searchsorted(SLICES, height) - 1, 0, len(SLICES) - 2)
    counts = np.bincount(inside_slice * size + flat, minlength=(CHANNELS - 2) * size).reshape(CHANNELS - 2, size)
    result[:-2] = np.log1p(counts)
    total = counts.sum(axis=0)
    full = total > 0
    highest = np.full(size, -np.inf, np.float32)
    np.maximum.at(highest, flat, height)
    result[-2, full] = np.clip(highest[full], -1, 3)
    result[-1, full] = np.bincount(flat, points[:, 3], minlength=size)[full] / total[full]
    return result.reshape(CHANNELS, CELLS, CELLS)


class Detector(Operator):
    """Finds objects on the grid of the cloud seen from above, with one of three nets."""

    KNOBS = {"model": ("small", "medium", "large")}
    #: Chance from which a centre counts.
    THRESHOLD = 0.5

    def changed(self) -> None:
        """Loads the model before the next item needs it."""
        own_net("lidar", f"detector_{self.knobs['model']}")

    def process(self, item: Item) -> list[Item]:
        """Centres, classes and chances in place of the points."""
        x = grid(array(item, "points", 2))
        output = own_net("lidar", f"detector_{self.knobs['model']}").run(x[None])[0][0]
        rows, columns, chances, values, kinds = centres.peaks(output, 2, self.THRESHOLD)
        places = np.stack([rows + values[:, 0], columns + values[:, 1]], axis=1) * OUTPUT_CELL - WATCHED
        return [
            Item(
                item.id,
                item.time_s,
                {
                    "centres": places.astype(np.float32),
                    "kinds": kinds.astype(np.uint8),
                    "chances": chances,
                },
            )
        ]


class Obstacles(Operator):
    """The post: merges finds within half a metre of a likelier find, and adds the distance of the nearest."""

    #: Two finds nearer than this are one object.
    SAME_M = 0.5

    def process(self, item: Item) -> list[Item]:
        """The list of obstacles, likeliest first."""
        places, kinds, chances = array(item, "centres", 2), array(item, "kinds", 1), array(item, "chances", 1)
        kept: list[int] = []
        for index in range(len(places)):
            apart = np.hypot(*(places[kept] - places[index]).T) if kept else np.array([np.inf])
            if apart.min() >= self.SAME_M:
                kept.append(index)
        chosen = places[kept]
        nearest = float(np.hypot(chosen[:, 0], chosen[:, 1]).min()) if len(chosen) else FARTHEST
        return [
            item.with_payload(
                centres=chosen,
                kinds=np.minimum(kinds[kept], len(KINDS) - 1),
                chances=chances[kept],
                nearest_m=nearest,
            )
        ]
