"""A synthetic road camera with ground truth: sparse traffic of cars, trucks and people, some of the vehicles red.

Problem: video monitoring needs frames whose content is known exactly, sparse enough that filters have something to
drop. Units: pixels, frames (15 a second), brightness 0-255. Method: a textured background with a two-way road;
vehicles of random size, speed and paint cross it with shadows and occlusion; people walk along the road, some
dressed in red; some scenes have a red awning that never moves; lighting drifts; each frame gets fresh sensor noise.
Limits: flat shapes, no perspective beyond one scale per lane, no turning vehicles. Everything follows from the seed.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from isolane.queries.images import Image

#: Pixels of a frame.
WIDTH, HEIGHT = 384, 224
#: Frames a second.
FRAME_RATE = 15.0
#: Names of the detector's classes; the first two are vehicles.
KINDS = ("car", "truck", "person")
#: Top of the first lane, and distance between lanes.
LANE_TOP, LANE_STEP, LANES = 80, 27, 4
#: Size of vehicles by lane: the camera is on the near side.
LANE_SIZES = (0.36, 0.5, 0.68, 0.9)
#: Frames that a scene runs before the first one is used, so that the road is not empty.
WARM_UP_FRAMES = 150
#: Paints near red that a colour filter must distinguish from red: brown, orange, pink, maroon-grey.
NEAR_RED = ((120, 66, 44), (228, 124, 30), (232, 130, 152), (110, 70, 70))


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What the camera sees under."""

    #: Share of the light that is missing, 0 (day) to 0.6 (night with lamps).
    darkness: float = 0.0
    #: Standard deviation of the sensor's noise.
    noise: float = 7.0
    #: Chance that an object enters in a frame.
    arrivals_per_frame: float = 0.011
    #: Share of vehicles painted red.
    red_share: float = 0.35


@dataclasses.dataclass(frozen=True)
class Truth:
    """One object that is at least half visible."""

    #: Index into KINDS.
    kind: int
    #: Left, top, right, bottom.
    box: tuple[float, float, float, float]
    #: Painted red; of people never true, for any clothes.
    red: bool


@dataclasses.dataclass
class _Object:
    kind: int
    x: float
    y: float
    width: float
    height: float
    speed: float
    paint: tuple[int, int, int]
    red: bool
    phase: float


class Scene:
    """An endless video with its truth."""

    def __init__(self, seed: int, conditions: Conditions | None = None) -> None:
        self.conditions = conditions or Conditions()
        self._random = np.random.default_rng([seed, 0x7261])
        self._objects: list[_Object] = []
        self._frame = 0
        self._background = self._paint_background()
        for _ in range(WARM_UP_FRAMES):
            self._advance()

    def step(self) -> tuple[Image, list[Truth]]:
        """The next frame and what is in it."""
        self._advance()
        image = self._background.copy()
        truths = []
        for thing in sorted(self._objects, key=lambda one: one.y + one.height):
            _draw(image, thing, self._frame)
            left, right = max(0.0, thing.x), min(float(WIDTH), thing.x + thing.width)
            if right - left > 0.5 * thing.width:
                box = (left, thing.y, right, thing.y + thing.height)
                truths.append(Truth(thing.kind, box, thing.red and thing.kind != 2))
        light = (1 - self.conditions.darkness) * (1 + 0.05 * np.sin(self._frame / 60))
        noise = self._random.standard_normal(image.shape, dtype=np.float32)
        exposed = image * np.float32(light) + noise * np.float32(self.conditions.noise)
        return np.clip(exposed, 0, 255).astype(np.uint8), truths

    def _advance(self) -> None:
        self._frame += 1
        for thing in self._objects:
            thing.x += thing.speed
        self._objects = [one for one in self._objects if -one.width - 1 <= one.x <= WIDTH + 1]
        if self._random.random() < self.conditions.arrivals_per_frame:
            self._objects.append(self._spawn())

    def _spawn(self) -> _Object:
        random = self._random
        kind = int(random.choice(3, p=[0.62, 0.18, 0.2]))
        red = bool(random.random() < self.conditions.red_share)
        if red:
            paint = (int(random.integers(165, 250)), int(random.integers(18, 50)), int(random.integers(18, 55)))
        elif random.random() < 0.3:
            paint = NEAR_RED[int(random.integers(len(NEAR_RED)))]
        else:
            base = int(random.integers(25, 225))
            shades = [int(np.clip(base + shift, 10, 245)) for shift in random.integers(-25, 60, 2)]
            paint = (max(10, base - 25), shades[0], shades[1])
        if kind == 2:
            height = float(random.uniform(14, 24))
            width = 0.42 * height
            y = float(random.choice([random.uniform(50, 58), random.uniform(190, 196)]))
            speed = float(random.choice([-1, 1]) * random.uniform(0.9, 2.2))
        else:
            lane = int(random.integers(LANES))
            size = LANE_SIZES[lane]
            y = LANE_TOP + LANE_STEP * lane + float(random.uniform(-3, 3)) + 8 * (1 - size)
            sides = (
                (random.uniform(33, 43), random.uniform(15, 19))
                if kind == 0
                else (random.uniform(52, 72), random.uniform(21, 26))
            )
            width, height = float(sides[0] * size), float(sides[1] * size)
            speed = (1 if lane > 1 else -1) * float(random.uniform(2.5, 5.0)) * size
        x = -width if speed > 0 else float(WIDTH)
        return _Object(kind, x, y, width, height, speed, paint, red, float(random.random()))

    def _paint_background(self) -> Image:
        random = self._random
        coarse = random.uniform(60, 120, (HEIGHT // 16 + 1, WIDTH // 16 + 1, 3))
        image = np.kron(coarse, np.ones((16, 16, 1)))[:HEIGHT, :WIDTH]
        image[72:192] = (82, 80, 80)
        for x in range(0, WIDTH, 40):
            image[131:134, x : x + 20] = 210
        for _ in range(10):
            x, y = int(random.integers(WIDTH)), int(random.integers(0, 40))
            image[y : min(50, y + int(random.integers(10, 30))), x : x + int(random.integers(15, 50))] = (
                random.integers(30, 200) + random.integers(-25, 25, 3)
            )
        if random.random() < 0.4:
            x = int(random.integers(WIDTH - 40))
            image[28:38, x : x + int(random.integers(14, 30))] = (190, 30, 34)
        image += random.normal(0, 6, image.shape)
        result: Image = np.clip(image, 0, 255).astype(np.uint8)
        return result


def _fill(image: Image, left: float, top: float, right: float, bottom: float, paint: tuple[int, ...]) -> None:
    """A rectangle, cut at the frame's edges."""
    x0, y0 = max(0, round(left)), max(0, round(top))
    x1, y1 = min(WIDTH, round(right)), min(HEIGHT, round(bottom))
    if x0 < x1 and y0 < y1:
        image[y0:y1, x0:x1] = paint


def _disc(image: Image, x: float, y: float, radius_x: float, radius_y: float, paint: tuple[int, ...]) -> None:
    """A filled ellipse, cut at the frame's edges."""
    x0, x1 = max(0, int(x - radius_x)), min(WIDTH, int(x + radius_x) + 2)
    y0, y1 = max(0, int(y - radius_y)), min(HEIGHT, int(y + radius_y) + 2)
    if x0 >= x1 or y0 >= y1:
        return
    columns = (np.arange(x0, x1) - x) / radius_x
    rows = (np.arange(y0, y1) - y) / radius_y
    image[y0:y1, x0:x1][rows[:, None] ** 2 + columns[None] ** 2 <= 1] = paint


def _draw(image: Image, thing: _Object, frame: int) -> None:
    x, y, width, height, paint = thing.x, thing.y, thing.width, thing.height, thing.paint
    middle = x + width / 2
    if thing.kind == 2:
        _disc(image, middle, y + 0.14 * height, max(2.0, 0.14 * height), max(2.0, 0.14 * height), (205, 168, 148))
        _fill(image, x, y + 0.28 * height, x + width, y + 0.65 * height, paint)
        swing = 2 * np.sin(0.8 * frame + 6 * thing.phase)
        for side in (-1, 1):
            foot = middle + side * (1.5 + swing)
            _fill(image, foot - 1, y + 0.65 * height, foot + 1, y + height, (60, 42, 40))
        return
    _disc(image, middle, y + height + 1, width / 2, 3, (40, 40, 40))
    if thing.kind == 0:
        _fill(image, x, y + 0.4 * height, x + width, y + height - 2, paint)
        for step in range(max(1, int(0.4 * height))):
            rise = step / (0.4 * height)
            _fill(
                image, x + (0.32 - 0.12 * rise) * width, y + step, x + (0.72 + 0.13 * rise) * width, y + step + 1, paint
            )
        _fill(image, x + 0.37 * width, y + 2, x + 0.67 * width, y + 0.36 * height, (122, 158, 178))
    else:
        _fill(image, x, y, x + width, y + height - 3, paint)
        cab = x + 0.75 * width if thing.speed > 0 else x
        dark = tuple(int(0.6 * value) for value in paint)
        _fill(image, cab, y + 0.25 * height, cab + 0.25 * width, y + height - 3, dark)
    for place in (0.2, 0.8):
        radius = max(2.0, 0.16 * height)
        _disc(image, x + place * width, y + height - 2, radius, radius, (15, 15, 15))
