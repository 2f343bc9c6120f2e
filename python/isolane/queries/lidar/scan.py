"""A synthetic laser scanner on a vehicle, with ground truth: cars, pedestrians and animals among clutter, with
occlusion.

Problem: driving perception needs scans whose content is known exactly and in which objects hide behind each other.
Units: metres (x forward, y left, z up, the sensor at the origin, 1.8 above the ground), seconds; intensity 0 to 1.
Method: 32 beams by 900 directions; each ray ends at the nearest of the ground (sloped, wavy, with raised pavements)
and all boxes, found by the slab test; ranges get noise, some rays are lost, rain loses more and adds ghosts near the
sensor. Objects move between scans. Limits: boxes are solid and have flat faces; no reflections; the sensor stands
upright. Everything follows from the seed.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

#: Classes of the detectors.
KINDS = ("car", "pedestrian", "animal")
#: Scans a second.
SCAN_RATE = 10.0
BEAMS, DIRECTIONS = 32, 900
#: Lowest and highest beam, degrees.
LOWEST, HIGHEST = -24.0, 4.0
SENSOR_HEIGHT = 1.8
#: Range of the sensor, and of the objects that count.
FARTHEST, WATCHED = 48.0, 24.0
#: Points from which an object counts as visible.
LEAST_POINTS = 12
#: Length, width, height of the classes, and of clutter: pole, bin, bush, wall.
SIZES = ((4.4, 1.85, 1.5), (0.6, 0.6, 1.75), (1.1, 0.45, 0.7))
CLUTTER = ((0.25, 0.25, 4.0), (0.6, 0.6, 1.1), (1.8, 1.4, 1.0), (9.0, 0.3, 2.4))
#: Index of the bush, whose points scatter by this standard deviation.
BUSH, BUSH_SCATTER_M = 5, 0.25


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What the sensor sees under."""

    #: Share of rays that return nothing.
    lost: float = 0.04
    #: Rays that end at a raindrop instead, as a share.
    ghosts: float = 0.0
    #: Standard deviation of a range.
    noise_m: float = 0.025
    #: Objects of the three classes, and pieces of clutter.
    objects: int = 14
    clutter: int = 24


@dataclasses.dataclass(frozen=True)
class Truth:
    """A visible object: class, place of its centre, and how many points hit it."""

    kind: int
    x: float
    y: float
    points: int


@dataclasses.dataclass
class _Box:
    kind: int
    x: float
    y: float
    heading: float
    length: float
    width: float
    height: float
    speed: float
    intensity: float
    fuzz: float

    def corners(self) -> Doubles:
        """The four corners on the ground."""
        along = np.array([np.cos(self.heading), np.sin(self.heading)])
        across = np.array([-along[1], along[0]])
        place = np.array([self.x, self.y])
        sides = [(i * self.length / 2, j * self.width / 2) for i in (-1, 1) for j in (-1, 1)]
        return np.array([place + length * along + width * across for length, width in sides])


_ELEVATION = np.radians(np.linspace(LOWEST, HIGHEST, BEAMS))
_AZIMUTH = (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS * 2 * np.pi
_RISE = np.tan(_ELEVATION)
_COS, _SIN = np.cos(_AZIMUTH), np.sin(_AZIMUTH)


class Street:
    """A place with objects that move; each `step` is one scan."""

    def __init__(self, seed: int, conditions: Conditions | None = None) -> None:
        self.conditions = conditions or Conditions()
        self._random = np.random.default_rng([seed, 0x6C69])
        random = self._random
        self._slope = random.uniform(-0.02, 0.02, 2)
        self._waves = random.uniform(0, 2 * np.pi, 3)
        self._wave_height = float(random.uniform(0.04, 0.12))
        self._pavement = float(random.uniform(6, 9))
        self._boxes: list[_Box] = []
        for _ in range(self.conditions.objects):
            self._place(int(random.choice(3, p=[0.4, 0.35, 0.25])))
        for _ in range(self.conditions.clutter):
            self._place(len(KINDS) + int(random.choice(4, p=[0.3, 0.25, 0.3, 0.15])))

    def step(self, seconds: float = 1 / SCAN_RATE) -> tuple[Points, list[Truth], npt.NDArray[np.int8]]:
        """The next scan (n x 4: x, y, z, intensity), its truth, and the class of each point (-1 for none)."""
        for box in self._boxes:
            box.x += box.speed * seconds * np.cos(box.heading)
            box.y += box.speed * seconds * np.sin(box.heading)
        return self._cast()

    def _ground(self, x: Doubles, y: Doubles) -> Doubles:
        wave = np.sin(x / 5 + self._waves[0]) + np.sin(y / 4 + self._waves[1]) + np.sin((x + y) / 9 + self._waves[2])
        height: Doubles = -SENSOR_HEIGHT + self._slope[0] * x + self._slope[1] * y + self._wave_height * wave / 2
        return height + 0.12 * (np.abs(y) > self._pavement)

    def _place(self, kind: int) -> None:
        """Puts an object where none is yet; gives up after 50 tries."""
        random = self._random
        for _ in range(50):
            x, y = random.uniform(-28, 28, 2)
            length, width, height = (SIZES + CLUTTER)[kind] * random.uniform(0.9, 1.1, 3)
            if np.hypot(x, y) < 4 + length / 2:
                continue
            if any(np.hypot(x - box.x, y - box.y) < 0.7 + (length + box.length) / 2 for box in self._boxes):
                continue
            speed = float(random.uniform(0, (8.0, 1.5, 2.0)[kind])) if kind < len(KINDS) else 0.0
            along = float(random.choice([0, np.pi]) + random.normal(0, 0.3))
            heading = float(random.uniform(0, 2 * np.pi)) if kind else along
            self._boxes.append(
                _Box(
                    kind,
                    float(x),
                    float(y),
                    heading,
                    float(length),
                    float(width),
                    float(height),
                    speed,
                    float(random.uniform(0.2, 0.9)),
                    BUSH_SCATTER_M if kind == BUSH else 0.0,
                )
            )
            return

    def _cast(self) -> tuple[Points, list[Truth], npt.NDArray[np.int8]]:
        random, weather = self._random, self.conditions
        distance = self._ground_distance()
        owner = np.full(distance.shape, -1, np.int16)
        for index, box in enumerate(self._boxes):
            self._hit(box, index, distance, owner)
        seen = (distance < FARTHEST - 0.01) & (random.random(distance.shape) >= weather.lost)
        ghost = random.random(distance.shape) < weather.ghosts
        distance = np.where(ghost, random.uniform(1.5, 9, distance.shape), distance)
        owner = np.where(ghost, -1, owner)
        seen |= ghost
        fuzz = np.array([box.fuzz for box in self._boxes] + [0.0])[owner]
        distance += random.standard_normal(distance.shape) * (weather.noise_m + fuzz)
        bright = np.array([box.intensity for box in self._boxes] + [0.25])[owner]
        bright = np.clip(bright + random.normal(0, 0.08, bright.shape), 0, 1)
        points = np.stack([distance * _COS, distance * _SIN, distance * _RISE[:, None], bright], axis=-1)
        kinds = np.array([box.kind if box.kind < len(KINDS) else -1 for box in self._boxes] + [-1], np.int8)[owner]
        counts = np.bincount(owner[seen] + 1, minlength=len(self._boxes) + 1)[1:]
        truths = [
            Truth(box.kind, box.x, box.y, int(count))
            for box, count in zip(self._boxes, counts, strict=True)
            if box.kind < len(KINDS) and count >= LEAST_POINTS and max(abs(box.x), abs(box.y)) < WATCHED
        ]
        return points[seen].astype(np.float32), truths, kinds[seen]

    def _ground_distance(self) -> Doubles:
        """Where each ray meets the ground, along the ground (a ray's height at distance d is d * rise)."""
        falling = (_RISE < -0.01)[:, None]
        fall = np.minimum(_RISE, -0.01)[:, None]
        reach: Doubles = np.where(falling, -SENSOR_HEIGHT / fall, FARTHEST) * np.ones(DIRECTIONS)
        for _ in range(4):
            reach = np.where(falling, self._ground(reach * _COS, reach * _SIN) / fall, FARTHEST)
            reach = np.clip(reach, 1.0, FARTHEST)
        return reach

    def _hit(self, box: _Box, index: int, distance: Doubles, owner: npt.NDArray[np.int16]) -> None:
        """Shortens the rays that meet this box."""
        corners = box.corners()
        if np.hypot(corners[:, 0], corners[:, 1]).min() > FARTHEST:
            return
        middle = np.arctan2(box.y, box.x)
        apart = np.angle(np.exp(1j * (np.arctan2(corners[:, 1], corners[:, 0]) - middle)))
        if np.ptp(apart) > np.pi:
            return
        step = 2 * np.pi / DIRECTIONS
        first, last = int(np.floor((middle + apart.min()) / step)), int(np.ceil((middle + apart.max()) / step))
        columns = np.arange(first, last + 1) % DIRECTIONS
        cos, sin = np.cos(box.heading), np.sin(box.heading)
        along = _COS[columns] * cos + _SIN[columns] * sin
        across = -_COS[columns] * sin + _SIN[columns] * cos
        enter, leave = _slab(-(box.x * cos + box.y * sin), along, box.length / 2)
        enter_across, leave_across = _slab(box.x * sin - box.y * cos, across, box.width / 2)
        near, far = np.maximum(enter, enter_across), np.minimum(leave, leave_across)
        bottom = float(self._ground(np.array(box.x), np.array(box.y)))
        height = near[None] * _RISE[:, None]
        meets = (near < far)[None] & (near > 0.5)[None] & (height >= bottom) & (height <= bottom + box.height)
        part = distance[:, columns]
        closer = meets & (near[None] < part)
        distance[:, columns] = np.where(closer, near[None], part)
        owner[:, columns] = np.where(closer, index, owner[:, columns])


def _slab(start: float, direction: Doubles, half: float) -> tuple[Doubles, Doubles]:
    """Distances at which rays enter and leave the space between two planes."""
    safe = np.where(np.abs(direction) < 1e-9, 1e-9, direction)
    one, two = (-half - start) / safe, (half - start) / safe
    return np.minimum(one, two), np.maximum(one, two)
